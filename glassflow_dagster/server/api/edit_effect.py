"""What an edit of a definition means for the pipeline's checkpoint: whether a start would go on, and from when on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glassflow_dagster.control.heartbeat import pipeline_folder
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.consistency import require_same_definition
from glassflow_dagster.stream.checkpoint.open_storage import open_storage


@dataclass(frozen=True)
class EditEffect:
    """The effect of an edit, and its reason in a sentence.

    outcome: refused (the driver would not start), first_start (there is no checkpoint yet), same_rows (the rows of an
    event stay the same), next_batch (events of later batches become other rows).
    """

    outcome: Literal["refused", "first_start", "same_rows", "next_batch"]
    reason: str

    @property
    def allowed(self) -> bool:
        """Whether the pipeline would go on."""
        return self.outcome != "refused"


def edit_effect(old: PipelineConfig | None, new: PipelineConfig, state: Path) -> EditEffect:
    """Return the effect of an edit on the checkpoint in a folder of state, or in the store that the definition names.

    old: None where it is invalid. Raises `GlassflowError` for a checkpoint that cannot be read.
    """
    folder = pipeline_folder(state, new.pipeline_id)
    checkpoint = Checkpoint(open_storage(new.state, folder, new.pipeline_id))
    if checkpoint.identity() is None:
        return EditEffect("first_start", "The pipeline has no checkpoint yet, so that everything may change.")
    try:
        require_same_definition(new, checkpoint)
    except CheckpointError as error:
        return EditEffect("refused", str(error))
    if old is not None and new.digest in old.digests | {old.digest}:
        return EditEffect(
            "same_rows",
            "The checkpoint goes on, and events become the same rows as before; the rest takes effect at the start.",
        )
    return EditEffect(
        "next_batch",
        "The checkpoint goes on. An open batch is finished by the old definition, later ones use the new one; rows "
        "that are in the table stay as they are.",
    )
