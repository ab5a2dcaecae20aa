"""A pipeline's own topic for dead letters that are sent again: made by whoever comes first, driver or replay."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.consumer import ANSWER_TIMEOUT
from glassflow_dagster.kafka.errors import TopicForbidden, TopicMissing
from glassflow_dagster.kafka.topics import offsets_if_there, wait_for_topic

# Replays are few and their order is kept; only what lies in this partition counts as sent.
REPLAY_PARTITION = 0

# A replay must wait for its pipeline, however long that stands still.
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

_LARGEST_RECORD = "max.message.bytes"


def find_replay_topic(config: PipelineConfig) -> bool:
    """Whether the replay topic is there and may be seen; raises `KafkaUnreachable`."""
    try:
        return bool(offsets_if_there(config.source.connection_params, config.replay_topic))
    except TopicForbidden:
        return False


def ensure_replay_topic(config: PipelineConfig) -> None:
    """Make the replay topic unless it is there; raises `TopicMissing` or `TopicForbidden` with what to do."""
    if find_replay_topic(config):
        return
    connection, topic = config.source.connection_params, config.replay_topic
    admin = AdminClient(client_settings(connection))
    made = NewTopic(topic, num_partitions=1, config={**_KEPT, **_record_limit(admin, config.source.topic)})
    try:
        admin.create_topics([made], request_timeout=ANSWER_TIMEOUT)[topic].result(ANSWER_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicMissing(
                f"topic {topic!r} for dead letters that are sent again cannot be made: {error.args[0].str()}; have it "
                "made with one partition and retention.ms=-1, grant READ, WRITE and DESCRIBE on it, then start the "
                "pipeline again"
            ) from error
    wait_for_topic(connection, topic, ANSWER_TIMEOUT, lambda _: None)


def _record_limit(admin: AdminClient, source_topic: str) -> dict[str, str]:
    """A record that fitted into the source must fit here, with some headers more."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, source_topic)
    try:
        found = admin.describe_configs([resource], request_timeout=ANSWER_TIMEOUT)[resource].result(ANSWER_TIMEOUT)
    except KafkaException:
        return {}  # not for this user to see: the brokers' own limit holds
    return {_LARGEST_RECORD: str(int(found[_LARGEST_RECORD].value) + 4096)}
