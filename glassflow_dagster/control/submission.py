"""What a driver on another host is to do, as its launcher writes it.

Apart from the driver itself (`submitted.py`), since a launcher needs none of its libraries.
"""

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.sent_definition import SentDefinition
from glassflow_dagster.errors import GlassflowError

# The environment variable of a submission that is not in a file.
SUBMISSION = "GLASSFLOW_SUBMISSION"
# Linux takes no longer variable (MAX_ARG_STRLEN), its name included.
_MOST_BYTES = 128 * 1024 - len(SUBMISSION) - 2
# The last line of a driver that has ended in good order.
STOPPED = "the driver has stopped"


class Submission(BaseModel):
    """What a driver is to do.

    state: its local folder.
    spark: Spark settings.
    id: by which its launcher knows it.
    """

    model_config = ConfigDict(frozen=True)

    definition: SentDefinition
    state: Path
    create_table: bool = False
    log_format: LogFormat | None = None
    spark: Mapping[str, str] = {}
    id: str = ""

    def encoded(self) -> str:
        """Return the submission as the value of an environment variable; raise `GlassflowError` for one too long."""
        text = base64.b64encode(zlib.compress(self.model_dump_json().encode(), 9)).decode()
        if len(text) > _MOST_BYTES:
            raise GlassflowError(
                f"the definition has {len(text)} bytes, compressed, and a variable of the driver's environment at most "
                f"{_MOST_BYTES}; use deploy_mode client, or kubernetes"
            )
        return text

    @classmethod
    def decode(cls, text: str) -> "Submission":
        """Return the submission that `encoded` has made a text of; raise `ValueError` for another text."""
        try:
            content = zlib.decompress(base64.b64decode(text))
        except zlib.error as error:
            raise ValueError(str(error)) from None
        return cls.model_validate_json(content)
