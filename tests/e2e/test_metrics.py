"""The metrics of a pipeline that runs: what its driver serves, and what is read of it afterwards."""

import socket
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from glassflow_dagster.checks.ledger_metrics import read_from_ledger
from glassflow_dagster.control.pipeline_metrics import read_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.kafka.end_offsets import EndOffsets
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable
from tests.e2e.support import Pipeline, invoke
from tests.support.waiting import DEADLINE


def values(address: str) -> dict[str, float]:
    """Return the value of each sample that has no label but the pipeline's, by name."""
    wanted = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(wanted, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return {sample.name: sample.value for sample in samples if set(sample.labels) == {"pipeline"}}


def test_a_driver_serves_its_metrics_while_it_runs(pipeline: Pipeline) -> None:
    pipeline.metrics = {"port": 0}
    pipeline.transforms = [{"type": "filter", "config": {"expression": "n != 13"}}]
    pipeline.write().create_topic()
    pipeline.send([*({"id": f"k{n % 40}", "n": n} for n in range(100)), b"poison"])
    served: dict[str, dict[str, float]] = {}
    addresses: list[str] = []

    def report(line: str) -> None:
        if line.startswith("metrics: "):
            addresses.append(line.removeprefix("metrics: "))
            served["starting"] = values(addresses[0])
        if line.endswith("is running"):
            served["running"] = values(addresses[0])

    options = RunOptions(pipeline.state, until_caught_up=True, timeout_seconds=DEADLINE)
    totals = run_pipeline(load_pipeline(pipeline.file), options, report)
    assert {when: found["glassflow_up"] for when, found in served.items()} == {"starting": 0, "running": 1}
    assert "glassflow_ledger_residual" not in served["starting"]
    with pytest.raises(OSError, match="refused"):
        values(addresses[0])

    (found,) = read_pipeline(pipeline.state, pipeline.name)
    assert found.outcomes == {
        "read": 101, "written": 40, "duplicate": 59, "filtered": 1, "late": 0, "dead_letter": 1, "unmatched": 0,
        "copy": 0,
    }  # fmt: skip
    assert (found.residual, found.epoch, totals.written) == (0, 1, 40)
    assert found.measures is not None
    assert found.measures.event_to_row.count == 40
    rows = {table.partition(".")[2]: insert.rows.total for table, insert in found.measures.inserts.items()}
    assert rows == {"events": 40, "glassflow_dead_letters": 1, "glassflow_ledger": 1}
    assert {"add_batch", "wal_commit", "total"} <= set(found.batch_phases)

    # Another host reads the same from ClickHouse.
    ledger = read_from_ledger(load_pipeline(pipeline.file))
    assert (ledger.outcomes, ledger.residual, ledger.epoch) == (found.outcomes, 0, 1)
    assert (ledger.dead_letters_waiting, ledger.driver) == (1, None)


def test_a_metrics_port_in_use_is_named_before_anything_is_read(pipeline: Pipeline) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        pipeline.metrics = {"port": port}
        pipeline.write()
        found = pipeline.run_without_spark()
    assert found.code == 1
    assert f"error: metrics: cannot listen on 127.0.0.1:{port} (Address already in use); choose" in found.err


def test_the_command_reads_the_ledger_of_all_definitions(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}, {"id": "a", "n": 2}])
    pipeline.catch_up()
    found = invoke("metrics", "--once", "--ledger", "--pipelines", str(pipeline.file.parent))
    assert found.code == 0, found.err
    assert f'glassflow_records_total{{outcome="duplicate",pipeline="{pipeline.name}"}} 1.0\n' in found.out


def test_end_offsets_are_those_of_the_topic(pipeline: Pipeline) -> None:
    pipeline.write().create_topic(partitions=2)
    pipeline.send([{"id": "a", "n": 1}] * 5)
    config = load_pipeline(pipeline.file)
    ends = EndOffsets.open(config.connection, "read_committed")
    # A partition that does not exist is left out.
    partitions = [(pipeline.name, 0), (pipeline.name, 1), (pipeline.name, 7)]
    assert ends.read(partitions) == {(pipeline.name, 0): 3, (pipeline.name, 1): 2}
    assert ends.read([]) == {}


def test_brokers_that_do_not_answer_are_named(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassflow_dagster.stores.kafka.end_offsets.ANSWER_TIMEOUT", 1.0)
    config = load_pipeline(pipeline.write().file)
    nowhere = config.connection.model_copy(update={"brokers": (f"127.0.0.1:{free_port()}",)})
    with pytest.raises(GlassflowError) as problem:
        EndOffsets.open(nowhere, "read_committed").read([("t", 0)])
    assert isinstance(problem.value, KafkaUnreachable)
