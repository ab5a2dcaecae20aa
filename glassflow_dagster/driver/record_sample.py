"""Samples the records that will be read next: their mean size limits the first batch."""

from contextlib import suppress
from dataclasses import dataclass

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.start_offsets import starting_offsets
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.streaming.delivery.batch_bound import sample_sizes


@dataclass(frozen=True)
class RecordSample:
    """The number of records in the sample, and the total bytes of their values."""

    records: int = 0
    bytes: int = 0

    @property
    def record_bytes(self) -> int:
        """The mean size of a record's value in bytes; 0 for an empty sample."""
        return self.bytes // max(1, self.records)


def sample_records(config: PipelineConfig, checkpoint: Checkpoint) -> RecordSample:
    """Read some of the records that the next batch will read; return an empty sample where that fails.

    Errors are ignored here: the query meets the same ones, and reports them.
    """
    with suppress(GlassflowError, OSError):
        next_offsets = checkpoint.next_offsets()
        starts = {
            source.topic: next_offsets.get(source.topic) or starting_offsets(config, index)
            for index, source in enumerate(config.inputs)
        }
        return RecordSample(*sample_sizes(config.source, starts))
    return RecordSample()
