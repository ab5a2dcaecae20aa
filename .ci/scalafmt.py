"""Format the Scala sources, or list the unformatted ones with --test: `make format`, `make lint`."""

import os
import subprocess
import sys

from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import find_java

SOURCES = "glassflow_dagster/stream/scala"


def main() -> int:
    """Run scalafmt with the given options; return its exit code."""
    classpath = os.pathsep.join(map(str, ensure_jars("format", lambda line: print(line, file=sys.stderr))))
    command = [str(find_java().executable), "-cp", classpath, "org.scalafmt.cli.Cli", *sys.argv[1:], SOURCES]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
