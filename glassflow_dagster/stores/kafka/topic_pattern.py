"""The topics that a source's `topic_pattern` stands for: those of the brokers whose whole name matches."""

from collections.abc import Callable, Iterable

import re2

from glassflow_dagster.definition.model.pipeline import REPLAY_SUFFIX, PipelineConfig
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT, ask_metadata, open_consumer
from glassflow_dagster.stores.kafka.errors import TopicMissing
from glassflow_dagster.stores.kafka.topics import wait_for

# Kafka's own topics begin so.
_INTERNAL = "__"


def matching_topics(config: PipelineConfig) -> tuple[str, ...]:
    """Return the topics that match, in the order of their names; raises `TopicMissing` where none does.

    Kafka's internal topics and the replay topics of all pipelines are left out. Raises `KafkaUnreachable`.
    """
    connection, pattern = config.connection, config.source.topic_pattern
    with open_consumer(connection) as (consumer, errors):
        names = ask_metadata(connection, consumer, errors, topic=None, timeout=ANSWER_TIMEOUT).topics
    matches = re2.compile(pattern).fullmatch
    found = [n for n in names if not n.startswith(_INTERNAL) and not n.endswith(REPLAY_SUFFIX) and matches(n)]
    if not found:
        raise TopicMissing(
            f"no topic on {', '.join(connection.brokers)} matches {pattern!r}; create one, or correct "
            "sources[0].topic_pattern"
        )
    return tuple(sorted(found))


def wait_for_matching_topics(
    config: PipelineConfig, timeout_seconds: float | None, report: Callable[[str], None]
) -> tuple[str, ...]:
    """Wait until a topic matches; return `matching_topics`.

    timeout_seconds, report: as of `wait_for_topic`.
    """
    return wait_for(lambda: matching_topics(config), timeout_seconds, report)


def with_topics(config: PipelineConfig, topics: Iterable[str]) -> PipelineConfig:
    """Return the definition with the topics that its pattern stands for; one without a pattern is returned unchanged.

    Their order is that of their names: it decides which of two records with one key is first within a batch, and stays
    when a topic is added.
    """
    if config.source.topic_pattern is None:
        return config
    source = config.source.model_copy(update={"topics": tuple(sorted(topics))})
    return config.model_copy(update={"sources": (source, *config.sources[1:])})
