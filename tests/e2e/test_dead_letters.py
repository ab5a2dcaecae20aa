"""A wrong definition and a wrong table, then fixed: every dead letter that can become a row does so, once."""

import json
from typing import Any

from click.testing import CliRunner, Result

from glassflow_dagster.cli import main
from tests.e2e.support import Pipeline


def command(pipeline: Pipeline, name: tuple[str, ...], *options: str) -> Result:
    """Run a command in this process: starting another would take longer than the command."""
    done = CliRunner().invoke(main, [*name, pipeline.name, "--pipelines", str(pipeline.file.parent), *options])
    assert done.exit_code == 0, done.output
    return done


def dead_letter_command(pipeline: Pipeline, name: str, *options: str) -> Result:
    return command(pipeline, ("dead-letters", name), *options)


def listed(pipeline: Pipeline, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dead_letter_command(pipeline, "list", "--json", *options).stdout)
    return found


def verified(pipeline: Pipeline) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(pipeline, ("verify",), "--json").stdout)
    assert found["counts"]["exact"], found
    return found


def rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return pipeline.query("SELECT id, n FROM {db}.events ORDER BY id")


def test_every_dead_letter_that_can_be_right_comes_into_the_table_once(pipeline: Pipeline) -> None:
    pipeline.columns = {"id": "String", "n": "Nullable(Int32)"}
    pipeline.dead_letters = {"max_attempts": 1, "retention": "30d"}
    pipeline.write().create_topic()
    pipeline.client().command(f"CREATE DATABASE {pipeline.name}")
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.events (id String, n Nullable(Int32), CONSTRAINT small CHECK n < 1000) "
        "ENGINE = MergeTree ORDER BY id"
    )
    good = [{"id": f"k{index}", "n": index} for index in range(50)]
    refused = [{"id": "big1", "n": 5000}, {"id": "big2", "n": 6000}]
    sent = [*good[:20], refused[0], {"id": "none"}, *good[20:], b"never right", refused[1], good[3], {"id": "none"}]
    pipeline.send(sent, lambda _: 0)

    first = pipeline.catch_up()

    assert (first["read"], first["written"], first["duplicates"], first["dead_letters"]) == (56, 50, 1, 5)
    found = {dead_letter["offset"]: dead_letter for dead_letter in listed(pipeline)}
    assert sorted(found) == [20, 21, 52, 53, 55]
    server = found[20]
    assert (server["stage"], server["attempt"], server["replayed"]) == ("insert", 0, False)
    assert "Constraint `small`" in server["reason"]
    assert (json.loads(server["value"]), server["key"], server["headers"]) == (refused[0], "k", [["h", "1"]])
    assert server["passed_dedup"]
    table = dead_letter_command(pipeline, "list", "--where", "stage = 'insert'")
    assert table.stdout.count("Constraint `small`") == 2
    assert "2 dead letters" in table.stderr
    assert verified(pipeline)["counts"]["figures"]["dead_letters_stored"] == 5

    # Fix both: the table accepts large numbers, and the definition events without a number.
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events DROP CONSTRAINT small")
    pipeline.fields[1]["required"] = False
    pipeline.write()
    assert "sent again: 1" in dead_letter_command(pipeline, "replay", "--where", "offset = 20").stdout
    again = dead_letter_command(pipeline, "replay").stdout
    assert "sent again: 4" in again
    assert "skipped: 1 that were sent before" in again
    assert [dead_letter["replayed"] for dead_letter in listed(pipeline)] == [True] * 5

    second = pipeline.catch_up()

    # The two events without a number have one key. Those that the server rejected pass, although their keys are stored.
    assert (second["read"], second["written"], second["duplicates"], second["dead_letters"]) == (5, 3, 1, 1)
    right = sorted([*((event["id"], event["n"]) for event in good + refused), ("none", None)])
    assert rows(pipeline) == right
    (hopeless,) = listed(pipeline, "--where", "NOT replayed")
    assert (hopeless["attempt"], hopeless["origin_topic"], hopeless["origin_offset"]) == (1, pipeline.name, 52)
    assert (hopeless["topic"], hopeless["value"]) == (f"{pipeline.name}.glassflow-replay", "never right")
    assert hopeless["headers"] == [["h", "1"]]
    verified(pipeline)

    stopped = dead_letter_command(pipeline, "replay").stdout
    assert "sent again: 0" in stopped
    assert "skipped: 1 that failed again after 1 replay" in stopped

    assert "deleted: 5" in dead_letter_command(pipeline, "purge", "--where", "replayed").stdout
    assert [dead_letter["attempt"] for dead_letter in listed(pipeline)] == [1]
    assert "deleted: 1" in dead_letter_command(pipeline, "purge").stdout
    assert listed(pipeline) == []
    assert pipeline.query("SELECT count() FROM {db}.glassflow_dead_letters") == [(0,)]
    assert verified(pipeline)["counts"]["figures"]["dead_letters_purged"] == 6
