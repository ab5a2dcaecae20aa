"""Samples the records that will be read next: their mean size limits the first batch."""

from contextlib import suppress

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.start_offsets import starting_offsets
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.delivery.batch_bound import RecordSample, sample_sizes


def sample_records(config: PipelineConfig, checkpoint: Checkpoint) -> RecordSample:
    """Read some of the records that the next batch will read; return an empty sample where that fails.

    Errors are ignored here: the query meets the same ones, and reports them.
    """
    with suppress(GlassflowError, OSError):
        next_offsets = checkpoint.next_offsets()
        starts = {
            topic: next_offsets.get(topic) or offsets
            for index in range(len(config.inputs))
            for topic, offsets in starting_offsets(config, index).items()
        }
        return sample_sizes(config.source, starts)
    return RecordSample()
