"""The topics that the receiver writes to: that they exist, and how large their messages may be."""

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT
from glassflow_dagster.stores.kafka.errors import TopicMissing
from glassflow_dagster.stores.kafka.topics import offsets_if_there, wait_for_topic

_LIMIT = "max.message.bytes"
# Kafka's default, for topics whose settings this user may not read.
_DEFAULT_LIMIT = 1_048_588
# The least that librdkafka takes, and that leaves room for a message besides its batch.
_SMALLEST_LIMIT = 2000


def require_topics(connection: KafkaConnection, topics: Iterable[str], *, create: bool) -> None:
    """Raise `TopicMissing` for a topic that does not exist, unless `create`: then create it with the brokers' defaults.

    Raises `KafkaUnreachable` or `TopicForbidden`, too.
    """
    for topic in sorted(set(topics)):
        if offsets_if_there(connection, topic):
            continue
        if not create:
            raise TopicMissing(
                f"topic {topic!r} does not exist on {', '.join(connection.brokers)}; create it, or start the receiver "
                "with --create-topics"
            )
        _create(connection, topic)


def message_limit(connection: KafkaConnection, topics: Iterable[str], report: Callable[[str], None]) -> int:
    """Return the least max.message.bytes of topics; raises `GlassflowError` for one that is too small for a producer.

    Reports a topic whose settings this user may not read; Kafka's default is assumed for it.
    """
    limits = {}
    # Kept in a variable until all results are read: they are lost when the client is garbage-collected.
    admin = AdminClient(client_settings(connection))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(set(topics))]
    for resource, request in admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT).items():
        try:
            limits[resource.name] = int(request.result(ANSWER_TIMEOUT)[_LIMIT].value)
        except KafkaException as error:
            limits[resource.name] = _DEFAULT_LIMIT
            report(
                f"topic {resource.name!r}: {_LIMIT} cannot be read ({error.args[0].str()}); {_DEFAULT_LIMIT:,} is "
                "assumed. Grant DESCRIBE_CONFIGS on the topic"
            )
    topic, least = min(limits.items(), key=lambda item: item[1])
    if least < _SMALLEST_LIMIT:
        raise GlassflowError(f"topic {topic!r}: {_LIMIT} is {least}; set it to {_SMALLEST_LIMIT} or more")
    return least


def _create(connection: KafkaConnection, topic: str) -> None:
    admin = AdminClient(client_settings(connection))
    try:
        admin.create_topics([NewTopic(topic)], request_timeout=ANSWER_TIMEOUT)[topic].result(ANSWER_TIMEOUT)
    except KafkaException as error:
        # Another process may have created it meanwhile.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"topic {topic!r} cannot be created on {', '.join(connection.brokers)}: {error.args[0].str()}; create "
                "it, or grant CREATE on it"
            ) from error
    wait_for_topic(connection, topic, timeout_seconds=ANSWER_TIMEOUT, report=lambda _: None)
