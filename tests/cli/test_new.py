"""The questions in a terminal: the same steps as on the page, asked one after the other."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import questionary
from click.testing import CliRunner
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from glassflow_dagster.cli import main
from glassflow_dagster.cli.asking import make_pipeline
from glassflow_dagster.cli.prompts import Terminal
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.services import Services
from glassflow_dagster.server.wizard.questions import YES, Option, Question
from tests.servers.stack import Stack
from tests.support.sending import Sender

ENTER, DOWN, SPACE = "\r", "\x1b[B", " "


@dataclass
class Person:
    """Takes each proposal, except where it has an answer of its own: question -> answers, one for each time."""

    answers: dict[str, list[str]]
    agrees: bool = True
    heard: list[str] = field(default_factory=list)

    def answer(self, question: Question) -> str:
        own = self.answers.get(question.name)
        return own.pop(0) if own else question.value

    def confirm(self, text: str, *, default: bool) -> bool:
        return default if not text.startswith("Write") else self.agrees

    def tell(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture
def topics(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("GLASSFLOW_KAFKA_BROKERS", stack.kafka)
    monkeypatch.setenv("GLASSFLOW_CLICKHOUSE_URL", stack.clickhouse)
    names = f"orders{uuid.uuid4().hex[:8]}", f"users{uuid.uuid4().hex[:8]}"
    sender = Sender(stack.kafka)
    for number in range(50):
        order = {"order_id": f"o{number % 40}", "user_id": f"u{number % 5}", "amount": number % 40}
        sender.send(names[0], json.dumps(order))
        sender.send(names[1], json.dumps({"event_id": f"e{number % 5}", "user_id": f"u{number % 5}", "name": "n"}))
    sender.flush()
    return names


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []
    monkeypatch.setattr(
        "glassflow_dagster.control.hosts.ensure_driver", lambda it, _report: started.append(it.config.pipeline_id)
    )
    return started


@pytest.mark.servers
def test_a_joined_pipeline_is_made_by_answers(
    tmp_path: Path, stack: Stack, topics: tuple[str, str], no_driver: list[str]
) -> None:
    services = Services.of(tmp_path / "pipelines", tmp_path / "state", LocalRunner(tmp_path / "state"), print)
    person = Person({
        "topic": [topics[0], topics[1]], "brokers": ["127.0.0.1:1", stack.kafka], "database": [topics[0]],
        "change": ["2", ""], "type": ["left", "UInt32"], "name": ["Orders"], "window": ["2h"],
    })  # fmt: skip
    make_pipeline(services, person)
    [stored] = services.catalog.files.all()
    config = load_pipeline(stored.file)
    assert config.join is not None
    assert (config.join.left_source.key, config.join.right_source.key) == ("user_id", "user_id")
    assert config.dedup is not None
    assert config.dedup.key_fields == ("order_id",)
    assert {each.column_name: each.column_type for each in config.sink.mapping}["amount"] == "UInt32"
    assert (config.name, config.sink.connection_params.database) == ("Orders", topics[0])
    assert no_driver == [stored.pipeline_id]
    told = "\n".join(person.heard)
    # The first brokers do not answer: the step is asked again.
    assert "brokers: " in told
    assert f"{stored.pipeline_id} runs; its definition is {stored.file}" in told


@pytest.mark.servers
def test_nothing_is_written_where_the_person_does_not_want_it(
    tmp_path: Path, topics: tuple[str, str], no_driver: list[str]
) -> None:
    services = Services.of(tmp_path / "pipelines", tmp_path / "state", LocalRunner(tmp_path / "state"), print)
    person = Person({"topic": [topics[0], ""]}, agrees=False)
    with pytest.raises(GlassflowError, match="no pipeline was made"):
        make_pipeline(services, person)
    assert not (tmp_path / "pipelines").exists()
    assert no_driver == []


def test_it_asks_only_in_a_terminal() -> None:
    result = CliRunner().invoke(main, ["new"])
    assert result.exit_code == 1
    assert "new: asks in a terminal" in result.stderr


@pytest.fixture
def keys() -> Iterator[Callable[[str], None]]:
    """Return a function that presses keys, as questionary reads them."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe.send_text


OPTIONS = (Option("a", "first", "remark"), Option("b"))


@pytest.mark.parametrize(
    ("question", "pressed", "answer"),
    [
        (Question("n", "Name", value="x"), f"y{ENTER}", "xy"),
        (Question("n", "Secret", "password"), f"s3{ENTER}", "s3"),
        (Question("n", "One", "choice", "b", OPTIONS), ENTER, "b"),
        (Question("n", "One", "choice", "", OPTIONS), f"{DOWN}{ENTER}", "b"),
        (Question("n", "Some", "choices", "a", OPTIONS), f"{DOWN}{SPACE}{ENTER}", "a\nb"),
        (Question("n", "Some", "choices", "", ()), "", ""),
        (Question("n", "Yes?", "check", ""), "y", YES),
        (Question("n", "Yes?", "check", YES), "n", ""),
        (Question("n", "Text", "lines", "a"), ENTER, "a"),
        (Question("n", "Lines", "lines", "a\nb"), f"c\x1b{ENTER}", "a\nbc"),
        (Question("n", "Table", "suggest", "b", OPTIONS), ENTER, "b"),
        (Question("n", "Table", "suggest", "new"), ENTER, "new"),
    ],
)
def test_each_kind_of_question_is_answered_by_keys(
    keys: Callable[[str], None], question: Question, pressed: str, answer: str
) -> None:
    assert questionary
    keys(pressed)
    assert Terminal().answer(question) == answer
