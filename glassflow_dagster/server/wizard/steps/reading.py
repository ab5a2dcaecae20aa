"""Reads the sample of a topic that was chosen, with the schema registry that was given."""

from typing import Any

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.draft import Side
from glassflow_dagster.inference.topic_sample import read_topic
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.connections import registry_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Option, Question, given, refused
from glassflow_dagster.server.wizard.secret_answers import is_same, kept_help, secret

REGISTRY_HELP = "http://HOST:PORT, for Avro and Protobuf with a schema registry; JSON needs none"


def topic_options(draft: Draft, without: str = "") -> tuple[Option, ...]:
    """Return the topics to choose from; not the product's own replay topics, nor `without`."""
    return tuple(
        Option(name, remark=f"{partitions} partition{'s' if partitions != 1 else ''}")
        for name, partitions in draft.topics.items()
        if name != without and not name.endswith(".glassflow-replay")
    )


def registry_questions(side: Side | None) -> list[Question]:
    """Return the questions for a schema registry and its credentials."""
    known = (side.registry or {}) if side else {}
    return [
        Question("registry", "Schema registry", value=str(known.get("url", "")), help=REGISTRY_HELP, advanced=True),
        Question(
            "registry_user", "User of the registry", value=str(known.get("api_key", "")), advanced=True,
            help="an API key; empty: no login",
        ),
        Question(
            "registry_password", "Password of the registry", "password", advanced=True,
            help=kept_help(known.get("api_secret")),
        ),
    ]  # fmt: skip


def _registry(known: dict[str, Any], answers: Answers) -> dict[str, Any] | None:
    """Return the `schema_registry` that the answers mean, None for none; raises `AnswerRefused`."""
    url = given(answers, "registry")
    if not url:
        return None
    registry = {"url": url}
    if user := given(answers, "registry_user"):
        registry["api_key"] = user
        registry["api_secret"] = secret(
            answers,
            "registry_password",
            known.get("api_secret"),
            same_server=is_same(known, registry, ("url", "api_key")),
        )
    return registry


def read_side(draft: Draft, topic: str, answers: Answers, before: Side | None) -> Side:
    """Return a topic with its sample; raises `AnswerRefused`. before: what was answered before, with its secrets."""
    registry = _registry((before.registry or {}) if before else {}, answers)
    if draft.topics and topic not in draft.topics:
        raise refused("topic", f"{topic!r} is no topic of these brokers; choose another")
    try:
        sample = read_topic(draft.kafka_connection, topic, registry_of(registry))
    except ApiError as error:
        raise AnswerRefused(Problem("registry", each.text) for each in error.problems) from None
    except GlassflowError as error:
        raise refused("topic", str(error)) from None
    # JSON of a registry has ids before the values; of JSON without them the registry is not needed.
    side = Side(sample, registry if registry and (sample.with_schema or sample.format != "json") else None)
    side.key = (sample.keys[0].name,) if sample.keys and sample.keys[0].is_unique else ()
    return side


def found(side: Side) -> str:
    """Return a line on a sample."""
    sample = side.sample
    skipped = f" Not readable: {sample.skipped}." if sample.skipped else ""
    return (
        f"Read {sample.messages:,} of about {sample.estimated:,} messages: {sample.format.upper()} with "
        f"{len(sample.fields)} field{'s' if len(sample.fields) != 1 else ''}.{skipped}"
    )
