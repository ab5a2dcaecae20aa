"""Lists the topics of a Kafka cluster."""

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT, ask_metadata, open_consumer


def list_topics(connection: KafkaConnection) -> dict[str, int]:
    """Return the topics that the user sees, by name, with the number of their partitions; without Kafka's own.

    Raises `KafkaRefused` and `KafkaUnreachable`.
    """
    with open_consumer(connection) as (consumer, errors):
        topics = ask_metadata(connection, consumer, errors, topic=None, timeout=ANSWER_TIMEOUT).topics
    return {name: len(topics[name].partitions) for name in sorted(topics) if not name.startswith("__")}
