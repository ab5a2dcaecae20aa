"""Spark settings in a properties file, as `spark-submit --properties-file` reads it.

Settings may be secrets, such as `spark.authenticate.secret`. A command line can be read by every user of the host; such
a file only by the user that runs the pipeline.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from glassflow_dagster.runtime.environment import variables

_FILE = "spark.properties"
# pyspark's variable for the arguments of the `spark-submit` that it runs.
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# What ends a key, or a line, of Java's properties.
_SPECIAL = re.compile(r"[\\:=#! ]")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_UNESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    """Write settings to a file that only this user may read; raises `OSError`."""
    # A file that was there would keep its mode.
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.writelines(f"{_escaped_key(key)}={_escaped(value)}\n" for key, value in settings.items())


def read_properties(file: Path) -> dict[str, str]:
    """Read the settings of a file that Spark or `write_properties` has written; raises `OSError`.

    Without what Java's format has besides: lines that continue, and keys without a value.
    """
    settings: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").split("\n"):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, _, value = re.sub(r"(?<!\\)(?:\s*[=:]\s*|\s+)", "\0", line.lstrip(), count=1).partition("\0")
        settings[_unescaped(key)] = _unescaped(value)
    return settings


@contextmanager
def submitted_settings(folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Let pyspark start `spark-submit` with these settings while the block runs; raises `OSError`.

    folder: for the file of the settings, which is removed afterwards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _FILE
    write_properties(file, settings)
    # Without the first option, spark-defaults.conf would no longer count.
    arguments = f"--load-spark-defaults --properties-file {shlex.quote(str(file))} pyspark-shell"
    try:
        with variables({_ARGUMENTS: arguments}):
            yield
    finally:
        file.unlink(missing_ok=True)


def _escaped_key(key: str) -> str:
    """Return a key as it is written in a properties file."""
    return _SPECIAL.sub(r"\\\g<0>", key)


def _escaped(value: str) -> str:
    """Return a value as it is written in a properties file."""
    text = "".join(_ESCAPES.get(character, character) for character in value)
    # A space at its beginning would belong to the separator.
    return f"\\{text}" if text.startswith(" ") else text


def _unescaped(text: str) -> str:
    """Return a key or a value as it was before it was written."""
    code = r"\\(?:u([0-9a-fA-F]{4})|(.))"
    return re.sub(code, lambda found: chr(int(found[1], 16)) if found[1] else _UNESCAPES.get(found[2], found[2]), text)
