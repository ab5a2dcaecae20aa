"""The topic to which dead letters are sent for a replay."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.kafka import replay_topic
from glassflow_dagster.stores.kafka.errors import TopicMissing

PIPELINES = Path(__file__).parents[3] / "pipelines"

pytestmark = pytest.mark.servers


@pytest.fixture
def config(connection: KafkaConnection, new_topic: Callable[..., str]) -> PipelineConfig:
    """Return the shipped pipeline on a topic of the test's own, named after the topic."""
    config = load_pipeline(PIPELINES / "sms_status.yaml", {})
    topic = new_topic()
    source = config.source.model_copy(update={"connection_params": connection, "topic": topic})
    return config.model_copy(update={"pipeline_id": topic, "sources": (source,)})


def settings(config: PipelineConfig, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": config.source.connection_params.brokers[0]})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in found.result(30).items()}


def test_the_replay_topic_keeps_records_and_has_the_sources_record_limit(config: PipelineConfig) -> None:
    assert not replay_topic.find_replay_topic(config)
    for _ in range(2):
        replay_topic.ensure_replay_topic(config)
    assert replay_topic.find_replay_topic(config)
    found = settings(config, config.replay_topic)
    assert (found["retention.ms"], found["retention.bytes"], found["cleanup.policy"]) == ("-1", "-1", "delete")
    limit = int(settings(config, config.source.topic)["max.message.bytes"])
    assert int(found["max.message.bytes"]) > limit


def test_a_forbidden_replay_topic_is_an_error_with_its_remedy(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate the missing right: the embedded broker grants everything."""

    class Refusing(AdminClient):
        def create_topics(self, *_: Any, **__: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(replay_topic, "AdminClient", Refusing)
    with pytest.raises(TopicMissing, match=r"cannot be created: .*; create it with one partition") as raised:
        replay_topic.ensure_replay_topic(config)
    assert "\n" not in str(raised.value)
    assert not replay_topic.find_replay_topic(config)
