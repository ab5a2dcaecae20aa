"""The definition that a driver gets through its standard input, where it is no file of its own.

Such a definition is a part of another file or was built in Python, and may hold secrets: so it is neither an argument,
which every user of the machine can see, nor written to the disk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from glassflow_dagster.definition.load import load_content, load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig

# The file name of such a definition on the driver's command line.
FROM_STDIN = "-"


class SentDefinition(BaseModel):
    """A definition as it was written, and the file that it is a part of, if any.

    is_content: it was built in Python, so that it has no references.
    """

    file: Path | None
    definition: Mapping[str, Any]
    is_content: bool

    @classmethod
    def of(cls, config: PipelineConfig) -> "SentDefinition":
        """Return what a driver needs to load a definition."""
        written = config.origin.written
        if written is None:
            return cls(file=None, definition=config.content, is_content=True)
        return cls(file=config.origin.file, definition=written, is_content=False)

    def load(self) -> PipelineConfig:
        """Load the definition; raises `DefinitionError`."""
        return load_content(self.definition) if self.is_content else load_written(self.definition, self.file)
