"""Spark's files of a state, in a checkpoint's local folder: state/OPERATOR/PARTITION/VERSION.KIND."""

import re
from pathlib import Path

# Names of the files with version 1 of a partition's state, which Spark writes in its first batch.
_FIRST_VERSION = re.compile(r"(?P<dot>\.?)1\.(?P<kind>zip|changelog)(?P<checksum>(\.crc)?)")


def number_first_version(checkpoint: Path, version: int) -> None:
    """Rename the first version of a state, so that the batch after `version - 1` continues from it.

    The state after batch N is version N + 1.
    """
    for file in (checkpoint / "state").glob("*/*/*"):
        if match := _FIRST_VERSION.fullmatch(file.name):
            file.rename(file.with_name(f"{match['dot']}{version}.{match['kind']}{match['checksum']}"))
