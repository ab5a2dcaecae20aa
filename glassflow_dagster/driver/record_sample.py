"""A look at the records that come next: their size bounds the first batch."""

from contextlib import suppress
from dataclasses import dataclass

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.start_offsets import starting_offsets
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.streaming.delivery.batch_bound import sample_sizes


@dataclass(frozen=True)
class RecordSample:
    """How many of the next records were looked at, and the bytes of their values."""

    records: int = 0
    bytes: int = 0

    @property
    def record_bytes(self) -> int:
        """The mean size of a record; 0 where none was looked at."""
        return self.bytes // max(1, self.records)


def sample_records(config: PipelineConfig, checkpoint: Checkpoint) -> RecordSample:
    """Look at some of the records that come next; return an empty sample where that fails.

    Whatever is wrong, the query finds out, and says so.
    """
    with suppress(GlassflowError, OSError):
        following = checkpoint.next_offsets()
        starts = {
            source.topic: following.get(source.topic) or starting_offsets(config, index)
            for index, source in enumerate(config.inputs)
        }
        return RecordSample(*sample_sizes(config.source, starts))
    return RecordSample()
