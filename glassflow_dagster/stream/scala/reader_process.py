"""Runs the JVM's reader of Protobuf without Spark, for commands (decode/ProtobufReader.scala).

A driver asks the JVM that it has.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Self

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder
from glassflow_dagster.stream.scala.build import state_jar

# It lives for some seconds: no second compiler, and no threads for collections.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Java from 24 on warns of what Spark's texts (UTF8String) need.
_QUIET_SINCE, _QUIET = 24, "--sun-misc-unsafe-memory-access=allow"


class ReaderProcess:
    """A JVM that answers requests while its context is open; it starts with the first one.

    report: receives progress where jars must be got first.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - __exit__ closes it

    def __enter__(self) -> Self:
        """Return this process, which is not started yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """End the JVM; it ends by itself when its input does."""
        self._errors.close()
        if self._process is not None:
            if kind is not None:
                self._process.kill()
            self._process.communicate()

    def ask(self, request: str) -> str:
        """Return the answer to a request, one line each; raises `GlassflowError` when the JVM does not answer."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise GlassflowError(f"Java has ended and cannot read Protobuf: {self._said()}")
        return answer

    def _start(self) -> "subprocess.Popen[str]":
        java = find_java()
        jars = [state_jar(self._report), *ensure_jars("spark", self._report), pyspark_folder() / "jars" / "*"]
        quiet = (_QUIET,) if java.version >= _QUIET_SINCE else ()
        class_path = os.pathsep.join(map(str, jars))
        return subprocess.Popen(
            [str(java.executable), *OPTIONS, *quiet, "-cp", class_path, "glassflow.ProtobufReader"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8",
        )  # fmt: skip

    def _said(self) -> str:
        """Return the first line that the JVM has written to its stderr, behind those on its options."""
        self._errors.seek(0)
        lines = (line for line in self._errors.read().splitlines() if not line.startswith("Picked up "))
        return next(lines, "without an error message")
