"""The Dagster resource that reads offsets from Kafka; it consumes no records."""

import dagster as dg

from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.topics import Offsets, offsets


class KafkaResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Reads the offsets of topics. Each pipeline definition has its own connection."""

    def offsets(self, source: Source) -> dict[int, Offsets]:
        """Return the offsets of each partition; raises `GlassflowError` for a missing topic or failing brokers."""
        return offsets(source.connection_params, source.topic)
