"""The topic through which a pipeline reads replayed dead letters. Driver or replay creates it, whichever is first."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.consumer import ANSWER_TIMEOUT
from glassflow_dagster.kafka.errors import TopicForbidden, TopicMissing
from glassflow_dagster.kafka.topics import offsets_if_there, wait_for_topic

# One partition keeps the order of the few replayed records. Replay checks only here which records it has already sent.
REPLAY_PARTITION = 0

# No retention limit: replayed records must wait for a stopped pipeline, however long.
_NO_RETENTION = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

_MAX_RECORD_SETTING = "max.message.bytes"
_REPLAY_HEADERS_BYTES = 4096  # more than the headers that a replay adds to a record


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
    new_topic = NewTopic(
        topic, num_partitions=1, config={**_NO_RETENTION, **_record_limit(admin, config.source_topics)}
    )
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


def _record_limit(admin: AdminClient, source_topics: Iterable[str]) -> dict[str, str]:
    """Return max.message.bytes for the replay topic: the greatest of the source topics, plus room for replay headers.

    Empty when this user may not read the settings of a source topic.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in source_topics]
    if not resources:
        return {}  # of a pattern, whose driver has not looked up the topics
    try:
        requests = admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT)
        limits = [int(requests[each].result(ANSWER_TIMEOUT)[_MAX_RECORD_SETTING].value) for each in resources]
    except KafkaException:
        return {}  # the brokers' default applies
    return {_MAX_RECORD_SETTING: str(max(limits) + _REPLAY_HEADERS_BYTES)}
