"""The topic through which a pipeline reads replayed dead letters. Driver or replay creates it, whichever is first."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT
from glassflow_dagster.stores.kafka.errors import TopicForbidden, TopicMissing
from glassflow_dagster.stores.kafka.topics import offsets_if_there, wait_for_topic

# One partition keeps the order of the few replayed records. Replay checks only here which records it has already sent.
REPLAY_PARTITION = 0

# No retention limit: replayed records must wait for a stopped pipeline, however long. They keep their timestamps.
_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}

MAX_RECORD_SETTING = "max.message.bytes"
_REPLAY_HEADERS_BYTES = 4096  # more than the headers that a replay adds to a record
# The bytes of a batch of librdkafka's, which a topic takes or rejects as a whole, and more than its own header.
_BATCH_BYTES = 1_000_000 + 4096

# How far a timestamp may be from the broker's clock, which a replay may be at any time after the record. Brokers before
# 3.6 know the first, those from 4.0 on only the others.
TIMESTAMP_SETTINGS = (
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)
ANY_TIMESTAMP = str(2**63 - 1)


def find_replay_topic(config: PipelineConfig) -> bool:
    """Return whether the replay topic exists and this user may describe it; raises `KafkaUnreachable`."""
    try:
        return bool(offsets_if_there(config.source.connection_params, config.replay_topic))
    except TopicForbidden:
        return False


def ensure_replay_topic(config: PipelineConfig) -> None:
    """Create the replay topic unless it exists; raises `TopicMissing` or `TopicForbidden` with what to do."""
    if find_replay_topic(config):
        return
    connection, topic = config.source.connection_params, config.replay_topic
    admin = AdminClient(client_settings(connection))
    new_topic = NewTopic(topic, num_partitions=1, config={**_SETTINGS, **_limits(admin, config.source_topics)})
    try:
        admin.create_topics([new_topic], request_timeout=ANSWER_TIMEOUT)[topic].result(ANSWER_TIMEOUT)
    except KafkaException as error:
        # Another process may have created it meanwhile.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"topic {topic!r} for replayed dead letters cannot be created: {error.args[0].str()}; create it with "
                "one partition and retention.ms=-1, grant READ, WRITE and DESCRIBE on it, then start the pipeline "
                "again"
            ) from error
    wait_for_topic(connection, topic, timeout_seconds=ANSWER_TIMEOUT, report=lambda _: None)


def _limits(admin: AdminClient, source_topics: Iterable[str]) -> dict[str, str]:
    """Return the settings with which the replay topic takes each record that a source topic has taken.

    max.message.bytes is the greatest of the source topics, plus room for replay headers; timestamps have no limit, by
    the settings that the broker knows. Empty when this user may not read the settings of a source topic.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in source_topics]
    if not resources:
        return {}  # of a pattern, whose driver has not looked up the topics
    try:
        requests = admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT)
        found = [requests[each].result(ANSWER_TIMEOUT) for each in resources]
    except KafkaException:
        return {}  # the brokers' defaults apply
    most_bytes = max(_BATCH_BYTES, *(int(settings[MAX_RECORD_SETTING].value) for settings in found))
    any_timestamp = {name: ANY_TIMESTAMP for name in TIMESTAMP_SETTINGS if name in found[0]}
    return {MAX_RECORD_SETTING: str(most_bytes + _REPLAY_HEADERS_BYTES), **any_timestamp}
