"""The command `plan`: its figures for a definition and a load."""

import json

import pytest

from tests.e2e.support import Finished, invoke

FILE = "pipelines/sms_status.yaml"


def plan(*options: str) -> Finished:
    return invoke("plan", FILE, *options)


def test_a_plan_says_what_is_needed_and_what_gives_out_first() -> None:
    done = plan("--rate", "50000", "--window", "7d")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "sms_status: 50,000 events/s of 500 bytes, deduplication"
    assert any("keys" in line and "30,240,000,000 within 7d" in line for line in lines)
    for name in ("cores for Spark's tasks", "partitions of the topic", "partitions of the state", "memory of"):
        assert any(line.strip().startswith(name) for line in lines), name
    assert sum("wall at" in line for line in lines) >= 2


def test_as_json_it_has_the_same_figures() -> None:
    found = json.loads(plan("--rate", "1000", "--json").out)
    assert found["kind"] == "deduplication"
    assert (found["cores"], found["executors"]) == (1, 0)
    beyond = json.loads(plan("--rate", "1e9", "--json").out)
    assert beyond["interval"] is None
    assert beyond["walls"][0]["rate"] < 1e9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--rate", "0"], "Invalid value for '--rate'"),
        (["--rate", "5", "--window", "soon"], "'soon' is not a duration; write a string such as"),
        ([], "Missing option '--rate'"),
    ],
)
def test_wrong_usage_is_refused(options: list[str], text: str) -> None:
    done = plan(*options)
    assert done.code == 2
    assert text in done.err
