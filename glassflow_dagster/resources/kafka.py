"""Kafka as Dagster's assets use it: asked, never consumed."""

import dagster as dg

from glassflow_dagster.config.model.source import Source
from glassflow_dagster.kafka.topics import Offsets, offsets


class KafkaResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Answers questions about topics. How to reach the brokers is part of each definition."""

    def offsets(self, source: Source) -> dict[int, Offsets]:
        """Give each partition's lowest and next offset; raises `GlassflowError` when topic or brokers are missing."""
        return offsets(source.connection_params, source.topic)
