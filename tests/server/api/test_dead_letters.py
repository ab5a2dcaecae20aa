"""Dead letters as GlassFlow's queue, without a driver; tests/server/api/test_sdk.py has those of a real pipeline."""

import base64
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.server.api import dead_letter_queue, replay_requests, reprocessing
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.catalog import Catalog
from glassflow_dagster.server.api.dead_letter_queue import DeadLetterQueue
from glassflow_dagster.server.api.message_ids import parse
from glassflow_dagster.server.api.replay_requests import ReplayRequests
from glassflow_dagster.server.api.states import Status
from glassflow_dagster.stores.dead_letters.replay import ReplayFenced, replay
from tests.checks.conftest import Pipeline, new_pipeline
from tests.server.api.conftest import Api, deduplicating
from tests.servers.stack import Stack
from tests.stores.dead_letters.conftest import DeadLetterPipeline
from tests.support.waiting import wait_until

__all__ = ["new_pipeline"]
DLQ = "/api/v1/pipeline/orders-clean/dlq"


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> DeadLetterPipeline:
    made = new_pipeline()
    return DeadLetterPipeline(made.config, made.client)


@pytest.fixture
def queue(pipeline: DeadLetterPipeline, tmp_path: Path) -> DeadLetterQueue:
    return DeadLetterQueue(pipeline.config, tmp_path / "consumed")


def messages(found: list[dict[str, Any]]) -> list[str]:
    return [each["original_message"] for each in found]


@pytest.mark.servers
def test_pages_follow_each_other_without_gap_or_repetition(
    pipeline: DeadLetterPipeline, queue: DeadLetterQueue
) -> None:
    for batch in range(3):
        pipeline.batch(*(f"{batch}-{number}".encode() for number in range(3)))
    expected = [f"{batch}-{number}" for batch in range(3) for number in range(3)]
    for size in (1, 2, 3, 8, 9, 100):
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = queue.page(size, cursor, None)
            found += messages(page["messages"])
            if not page["has_more"]:
                assert "next_cursor" not in page
                break
            cursor = page["next_cursor"]
        assert found == expected


@pytest.mark.servers
def test_components_are_those_of_glassflow(pipeline: DeadLetterPipeline, queue: DeadLetterQueue) -> None:
    components = {
        "decode": "ingestor", "filter": "dedup", "transform": "dedup", "dedup": "dedup", "join": "join",
        "mapping": "sink", "route": "sink", "insert": "sink",
    }  # fmt: skip
    for stage in components:
        pipeline.batch(stage.encode(), stage=stage)
    for component in ("ingestor", "dedup", "join", "sink", "otlp-receiver", "x' OR 1 --"):
        found = queue.page(100, None, component)["messages"]
        assert messages(found) == [stage for stage, name in components.items() if name == component]
        assert {each["component"] for each in found} <= {component}


@pytest.mark.servers
def test_a_value_is_text_or_base64_and_a_missing_one_is_empty(
    pipeline: DeadLetterPipeline, queue: DeadLetterQueue
) -> None:
    pipeline.batch("é".encode(), b"\xff", None, reason="why")
    text, binary, missing = queue.page(10, None, None)["messages"]
    assert text["original_message"] == "é"
    assert "original_message_encoding" not in text
    assert (base64.b64decode(binary["original_message"]), binary["original_message_encoding"]) == (b"\xff", "base64")
    assert missing["original_message"] == ""
    assert (text["error"], text["stage"], text["offset"], text["received_at"][-1]) == ("why", "decode", 0, "Z")


@pytest.mark.servers
def test_each_dead_letter_is_consumed_once_and_stays(pipeline: DeadLetterPipeline, queue: DeadLetterQueue) -> None:
    pipeline.batch(*(str(number).encode() for number in range(20)))
    state = queue.state()
    assert (state["total_messages"], state["unconsumed_messages"], state["last_consumed_at"]) == (20, 20, None)
    with ThreadPoolExecutor(8) as clients:
        parts = list(clients.map(lambda _: messages(queue.consume(3)), range(8)))
    assert sorted((each for part in parts for each in part), key=int) == [str(number) for number in range(20)]
    assert queue.consume(3) == []
    pipeline.batch(b"new")
    assert queue.state()["unconsumed_messages"] == 1
    assert messages(queue.consume(3)) == ["new"]
    state = queue.state()
    assert (state["total_messages"], state["unconsumed_messages"]) == (21, 0)
    assert state["last_consumed_at"]
    assert len(queue.page(100, None, None)["messages"]) == 21


@pytest.mark.servers
def test_none_is_skipped_whatever_order_tasks_write_them_in(
    pipeline: DeadLetterPipeline, queue: DeadLetterQueue
) -> None:
    now = round(time.time() * 1000)
    pipeline.batch(b"first", at=now)
    pipeline.batch(b"second, of the quick task", partition=1, at=now + 1, is_open=True)
    # A batch that is being written is not complete.
    assert (messages(queue.consume(10)), queue.state()["unconsumed_messages"]) == (["first"], 0)
    assert messages(queue.page(10, None, None)["messages"]) == ["first"]
    pipeline.batch(b"second, of the slow task", partition=0, at=now + 1)
    # The host's clock is set back.
    pipeline.batch(b"third", at=now - 1000)
    assert queue.state()["unconsumed_messages"] == 3
    expected = ["second, of the slow task", "second, of the quick task", "third"]
    assert messages(queue.page(10, None, None)["messages"]) == ["first", *expected]
    assert [messages(queue.consume(2)), messages(queue.consume(2))] == [expected[:2], expected[2:]]
    # Batches of a new checkpoint are counted from the start.
    pipeline.start_new_checkpoint()
    pipeline.batches = 0
    pipeline.batch(b"of a new checkpoint")
    assert messages(queue.consume(10)) == ["of a new checkpoint"]


@pytest.mark.servers
def test_only_what_waits_is_in_the_queue(pipeline: DeadLetterPipeline, queue: DeadLetterQueue) -> None:
    pipeline.batch(b"of an earlier checkpoint")
    pipeline.start_new_checkpoint()
    pipeline.batch(b"waits")
    assert messages(queue.page(10, None, None)["messages"]) == ["waits"]
    state = queue.state()
    assert (state["total_messages"], state["unconsumed_messages"]) == (2, 1)


@pytest.mark.servers
def test_selected_ones_are_discarded_and_the_others_stay(
    pipeline: DeadLetterPipeline, queue: DeadLetterQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_queue, "IDS_AT_ONCE", 2)
    pipeline.batch(*(str(number).encode() for number in range(8)))
    ids = [each["message_id"] for each in queue.page(100, None, None)["messages"]]
    conditions, missing = queue.replay_conditions(ids[:3])
    assert (len(conditions), missing) == (2, [])
    assert queue.discard(ids[:5]) == 5
    assert queue.discard(ids[:5]) == 0
    assert messages(queue.page(100, None, None)["messages"]) == ["5", "6", "7"]
    assert queue.replay_conditions(ids[3:6]) == (queue.replay_conditions(ids[3:6])[0], ids[3:5])
    assert queue.replay_conditions(ids[:2]) == ([], ids[:2])
    assert queue.discard(None) == 3
    state = queue.state()
    assert (state["total_messages"], state["unconsumed_messages"]) == (8, 0)
    pipeline.batch(b"x")
    queue.purge()
    assert queue.page(100, None, None) == {"messages": [], "has_more": False}


@pytest.mark.servers
def test_a_pipeline_that_has_never_run_has_an_empty_queue(api: Api, stack: Stack) -> None:
    definition = deduplicating()
    definition["sink"]["connection_params"] |= {
        "port": str(stack.clickhouse_port), "http_port": str(stack.clickhouse_port), "database": "nothing_here",
        "password": "",
    }  # fmt: skip
    api.write(definition)
    empty = {"last_received_at": None, "last_consumed_at": None, "total_messages": 0, "unconsumed_messages": 0}
    assert api.get(f"{DLQ}/state").json() == empty
    assert api.get(f"{DLQ}/list").json() == {"messages": [], "has_more": False}
    consumed = api.get(f"{DLQ}/consume")
    assert (consumed.status_code, consumed.content) == (204, b"")
    assert api.post(f"{DLQ}/purge").status_code == 204
    assert api.post(f"{DLQ}/discard", {"mode": "all"}).json()["discarded_count"] == 0
    refused = api.post(f"{DLQ}/reprocess", {"mode": "all"})
    assert (refused.status_code, refused.json()["details"]["current_status"]) == (409, "Stopped")


@pytest.fixture
def running(pipeline: DeadLetterPipeline, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Serve an API for the pipeline, which it takes for running."""
    api.folder.mkdir()
    file = f"{pipeline.config.pipeline_id}.yaml"
    (api.folder / file).write_bytes((tmp_path / file).read_bytes())
    monkeypatch.setattr(Catalog, "config", lambda *_: pipeline.config)
    monkeypatch.setattr(Catalog, "status", lambda *_: Status.RUNNING)
    return api


def outcomes(api: Api, requests: list[str]) -> list[Any] | None:
    """Return what the audit log says of requests, in the order in which they were done; None before all are."""
    log = api.folder / ".api" / "audit.jsonl"
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    done = [line["outcome"] for line in lines if line["request"] in requests and line["event"] == "done"]
    return done if len(done) == len(requests) else None


@pytest.mark.servers
def test_requests_to_reprocess_at_once_are_all_done(pipeline: DeadLetterPipeline, running: Api) -> None:
    pipeline.batch(*(str(number).encode() for number in range(4)))
    path = f"/api/v1/pipeline/{pipeline.config.pipeline_id}/dlq"
    ids = [each["message_id"] for each in running.get(f"{path}/list").json()["messages"]]
    with ThreadPoolExecutor(4) as clients:
        bodies = [{"mode": "selected", "message_ids": [each]} for each in ids]
        answers = list(clients.map(lambda body: running.post(f"{path}/reprocess", body), bodies))
    assert {answer.status_code for answer in answers} == {202}
    requests = [answer.json()["request_id"] for answer in answers]
    assert wait_until(lambda: outcomes(running, requests), "all are done") == [["sent again: 1"]] * 4
    assert sorted(record.value for record in pipeline.topic()) == [str(number).encode() for number in range(4)]


@pytest.mark.servers
def test_a_request_is_done_when_the_replay_that_has_ended_it_is_over(
    pipeline: DeadLetterPipeline, running: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of the command line, which sends others; and after the API was started again."""
    pipeline.batch(b"mine", b"the other's")
    monkeypatch.setattr(reprocessing, "QUIET_SECONDS", 0.1)
    calls: list[str] = []

    def fenced_once(config: PipelineConfig, condition: str, report: Any) -> Any:
        calls.append(condition)
        if len(calls) == 1:
            assert replay(config, "value != 'mine'", report).sent == 1
            raise ReplayFenced("another replay has started")
        return replay(config, condition, report)

    monkeypatch.setattr(reprocessing, "replay", fenced_once)
    requests = running.services.replays
    requests.add(pipeline.config.pipeline_id, "dlq-reprocess-1", ["value = 'mine'"])
    assert wait_until(lambda: outcomes(running, ["dlq-reprocess-1"]), "it is done") == [["sent again: 1"]]
    assert [record.value for record in pipeline.topic()] == [b"the other's", b"mine"]

    monkeypatch.setattr(reprocessing, "replay", replay)
    pipeline.batch(b"later")
    with monkeypatch.context() as ended:
        # The process has ended before its thread began.
        ended.setattr(replay_requests, "Thread", Mock())
        accepted = ReplayRequests(requests.folder, Mock())
        accepted.add(pipeline.config.pipeline_id, "dlq-reprocess-2", ["value = 'later'"])
    requests.go_on()
    assert wait_until(lambda: outcomes(running, ["dlq-reprocess-2"]), "it is done") == [["sent again: 1"]]
    assert not [*requests.folder.glob("*/*.json")]


@pytest.mark.servers
def test_all_are_those_that_wait_when_the_request_is_accepted(
    pipeline: DeadLetterPipeline, queue: DeadLetterQueue
) -> None:
    assert queue.replay_conditions(None) == ([], [])
    pipeline.batch(b"a", b"b")
    [condition], missing = queue.replay_conditions(None)
    pipeline.batch(b"later")
    assert (pipeline.store.count(condition), missing) == (2, [])


def test_wrong_requests_are_told(api: Api) -> None:
    api.write(deduplicating())
    for path, body, status in (
        ("/discard", {"mode": "selected"}, 400), ("/discard", {"mode": "some"}, 422), ("/discard", {}, 422),
        ("/discard", {"mode": "selected", "message_ids": ["x"] * 1001}, 422),
        ("/discard", {"mode": "selected", "message_ids": ["x"]}, 400),
    ):  # fmt: skip
        assert api.post(f"{DLQ}{path}", body).status_code == status
    for size in ("0", "1001", "x"):
        for path in ("/consume", "/list"):
            assert api.get(f"{DLQ}{path}", params={"batch_size": size}).status_code == 422
    assert api.get(f"{DLQ}/list", params={"cursor": "x"}).status_code == 400
    # Nothing listens.
    unreachable = api.get(f"{DLQ}/state")
    assert (unreachable.status_code, unreachable.json()["code"]) == (503, "service_unavailable")
    unknown = api.get("/api/v1/pipeline/nothing/dlq/state")
    assert (unknown.status_code, unknown.json()["message"]) == (404, 'dlq for pipeline_id "nothing" does not exist')


def encoded(key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


CHECKPOINT = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("text", [
    "", "x", "ü", "W10", encoded({}), encoded([1, "t", 0, 0, -1, ""]), encoded(["no uuid", 1, "t", 0, 0, -1, ""]),
    encoded([CHECKPOINT, True, "t", 0, 0, -1, ""]), encoded([CHECKPOINT, 2**63, "t", 0, 0, -1, ""]),
    encoded([CHECKPOINT, 1, "\ud800", 0, 0, -1, ""]), encoded([CHECKPOINT, 1.5, "t", 0, 0, -1, ""]),
    encoded("x" * 1000), encoded([CHECKPOINT, 1, "t", 0, "0) OR (1", -1, ""]),
])  # fmt: skip
def test_an_id_that_this_api_has_not_given_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="message_id is invalid"):
        parse(text)


def test_an_id_may_have_any_topic() -> None:
    key = [CHECKPOINT, 1, "t') OR ('", 0, 2**62, -1, "d.t"]
    assert list(parse(encoded(key))) == key
