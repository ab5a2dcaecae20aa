"""The guide's commands run, and its tables have what the code has."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from glassflow_dagster.server.otlp.refusals import Reason
from tests.server.otlp.conftest import Receiver, Start, traces, values
from tests.servers.stack import Stack

GUIDE = (Path(__file__).parents[3] / "docs" / "tutorials" / "otlp.md").read_text()


def command(name: str) -> list[str]:
    """Return the arguments of the guide's command that begins with a name."""
    [line] = re.findall(rf"^{name} (.*)$", GUIDE, re.MULTILINE)
    return shlex.split(line)


@pytest.mark.servers
def test_the_commands_of_the_guide_run(stack: Stack, start: Start) -> None:
    receiver = start(*command("glassflow-dagster otlp"))
    _, url, _, header, _, body = command("curl")
    name, _, value = header.partition(": ")
    answer = httpx.post(url.replace("http://127.0.0.1:4318", receiver.url), content=body, headers={name: value})
    assert (answer.status_code, answer.json()) == (200, {})
    [message] = values(stack, "otlp_logs")
    assert b"hello" in message


def test_the_guide_lists_the_answers() -> None:
    for reason in Reason:
        assert re.search(rf"^\|[^|]*\b{int(reason.http)}\b", GUIDE, re.MULTILINE)
        if reason.http not in {408, 415}:  # which only HTTP has
            assert reason.grpc.name in GUIDE


@pytest.mark.servers
def test_the_guide_lists_the_metrics(start: Start, new_topic: Callable[..., str]) -> None:
    receiver: Receiver = start("--traces-topic", new_topic())
    assert receiver.post(traces(["one"]).SerializeToString()).status_code == 200
    served = re.findall(r"^# TYPE (\w+) (\w+)$", receiver.metrics(), re.MULTILINE)
    listed = re.findall(r"^\| `(glassflow_otlp_\w+?)(?:_total)?` \| (\w+)", GUIDE, re.MULTILINE)
    assert sorted(served) == sorted(listed)
