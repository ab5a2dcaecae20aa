"""Reads the sample of a topic that was chosen, with the schema registry that was given."""

from glassflow_dagster.api.connections import registry_of
from glassflow_dagster.api.errors import ApiError
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.wizard.draft import Draft, Side
from glassflow_dagster.wizard.questions import AnswerRefused, Answers, Option, Question, given, refused
from glassflow_dagster.wizard.topic_sample import read_topic

REGISTRY_HELP = "http://HOST:PORT, for Avro and Protobuf with a schema registry; JSON needs none"


def topic_options(draft: Draft, without: str = "") -> tuple[Option, ...]:
    """Return the topics to choose from; not the product's own replay topics, nor `without`."""
    return tuple(
        Option(name, remark=f"{partitions} partition{'s' if partitions != 1 else ''}")
        for name, partitions in draft.topics.items()
        if name != without and not name.endswith(".glassflow-replay")
    )


def registry_question(side: Side | None) -> Question:
    """Return the question for the address of a schema registry."""
    url = str((side.registry or {}).get("url", "")) if side else ""
    return Question("registry", "Schema registry", value=url, help=REGISTRY_HELP, advanced=True)


def read_side(draft: Draft, topic: str, answers: Answers) -> Side:
    """Return a topic with its sample; raises `AnswerRefused`."""
    url = given(answers, "registry")
    registry = {"url": url} if url else None
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
