"""A repeated batch duplicates rows only if the definition's delivery guarantee allows it."""

import pytest

from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from tests.e2e.support import Pipeline


@pytest.mark.parametrize(("engine", "delivery"), [("MergeTree", "exactly_once"), ("Log", "at_least_once")])
def test_a_repeated_batch_doubles_rows_only_where_the_definition_allows_it(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], engine: str, delivery: str
) -> None:
    pipeline.sink = {"delivery": delivery, "create_table": {"engine": engine}}
    pipeline.write().create_topic()
    pipeline.send([{"id": f"k{index % 30}", "n": index} for index in range(40)])
    pipeline.catch_up()
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(30, 30)]
    warned = "warning: a batch that is repeated after a failure may duplicate rows" in capsys.readouterr().out

    # Repeat the batch, as after a crash between the last insert and the commit.
    (commit,) = (pipeline.state / pipeline.name / "checkpoint" / "commits").glob("[0-9]*")
    commit.unlink()
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    pipeline.catch_up()

    rows = 30 if delivery == "exactly_once" else 60
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(rows, 30)]
    assert pipeline.ledger()["written"] == 30
    found = verify_pipeline(load_pipeline(pipeline.file), print)
    assert found.passed
    assert found.counts.exact is (delivery == "exactly_once")
    assert warned is (delivery == "at_least_once")


def test_json_that_only_the_server_refuses_is_a_dead_letter_and_the_other_rows_are_there(pipeline: Pipeline) -> None:
    """The mapping checks the numbers at typed paths; what else does not fit there, the server finds as it reads it."""
    pipeline.fields = [{"name": "id", "type": "string"}, {"name": "j", "type": "map"}]
    pipeline.columns = {"id": "String", "j": "JSON(a Bool)"}
    pipeline.write().create_topic()
    pipeline.send([{"id": f"k{index}", "j": {"a": index != 5 or "neither"}} for index in range(20)], lambda _: 0)
    totals = pipeline.catch_up()
    assert (totals["read"], totals["written"], totals["dead_letters"]) == (20, 19, 1)
    assert pipeline.query("SELECT count(), countIf(j.a) FROM {db}.events") == [(19, 19)]
    ((stage, offset, value),) = pipeline.query("SELECT stage, offset, value FROM {db}.glassflow_dead_letters")
    assert (stage, offset, value) == ("insert", 5, '{"id": "k5", "j": {"a": "neither"}}')
