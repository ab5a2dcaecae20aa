"""Records behind an open transaction, which a reader of committed records cannot see yet: they are told of."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.e2e.support import Pipeline, invoke, rows, start, status, stop
from tests.support.waiting import wait_until


@pytest.fixture
def transaction(pipeline: Pipeline) -> Iterator[Producer]:
    """Open a transaction with two records in the first partition, behind which a committed one waits."""
    pipeline.write().create_topic()
    producer = Producer({"bootstrap.servers": pipeline.brokers, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in (1, 2):
        producer.produce(pipeline.name, json.dumps({"id": f"k{number}", "n": number}).encode(), partition=0)
    assert producer.flush(30) == 0
    pipeline.send([{"id": "k3", "n": 3}], lambda _: 0)
    yield producer
    # Nothing is left open for others where the test has failed.
    producer.purge()


def test_a_run_until_caught_up_says_what_waits_behind_an_open_transaction(
    pipeline: Pipeline, transaction: Producer, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.send([{"id": "k0", "n": 0}], lambda _: 1)
    assert pipeline.catch_up(create_table=True)["written"] == 1
    told = capsys.readouterr().out
    assert f"topic '{pipeline.name}', partition 0: up to 3 records wait behind an open transaction; run again" in told
    transaction.commit_transaction(30)
    assert pipeline.catch_up()["written"] == 3
    assert "transaction" not in capsys.readouterr().out


@pytest.mark.long
def test_the_status_of_a_new_pipeline_knows_that_nothing_else_waits(pipeline: Pipeline, transaction: Producer) -> None:
    """Before its first batch."""
    start(pipeline)
    try:
        wait_until(lambda: status(pipeline)["lag"] == 0, "the lag is known")
        assert status(pipeline)["behind_transactions"] == {pipeline.name: 3}
        shown = invoke("status", pipeline.name, "--state", str(pipeline.state))
        assert "batch -, lag 0 and 3 behind open transactions" in shown.out
        transaction.commit_transaction(30)
        wait_until(lambda: rows(pipeline) == 3, "the rows have arrived")
        wait_until(lambda: status(pipeline)["behind_transactions"] == {}, "nothing waits")
    finally:
        stop(pipeline)
