"""From a file to a `PipelineConfig`, or to every mistake in it at once.

The way is gone once: text, parsed object, v3, references filled in, models and rules, servers of the environment.
Older formats are rewritten as v3 first (`formats/`), so that there is one format to judge; what is wrong is told at its
place in the file as it was written.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassflow_dagster.config.definition_text import read_definition
from glassflow_dagster.config.formats.rewrite import Rewritten
from glassflow_dagster.config.formats.upgrade import upgrade
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.plain_secrets import secrets_in
from glassflow_dagster.config.problems import DefinitionError
from glassflow_dagster.config.servers import with_servers_of
from glassflow_dagster.config.stages import plan_stages
from glassflow_dagster.config.validation import validate_definition
from glassflow_dagster.config.variables import References, fill_references
from glassflow_dagster.config.yaml_text import write_yaml


@dataclass(frozen=True)
class LoadedDefinition:
    """A definition that runs, and what its author should know: of its rewriting, its secrets and its meaning."""

    config: PipelineConfig
    rewriting_warnings: tuple[str, ...]
    secret_warnings: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that is right and may be meant otherwise."""
        return (*self.rewriting_warnings, *self.secret_warnings, *warnings(self.config))


def load_definition(file: Path, environment: Mapping[str, str] = os.environ) -> LoadedDefinition:
    """Read a definition, YAML or JSON; raises `DefinitionError` with every mistake in it."""
    rewritten = upgrade(file, read_definition(file))
    filled, unset = fill_references(rewritten.definition, References(environment, file.parent))
    if unset:
        raise DefinitionError(file, rewritten.all_problems(rewritten.at_origin(unset)))
    config = with_servers_of(_accepted(file, rewritten, filled), environment)
    return LoadedDefinition(config, rewritten.warnings, secrets_in(rewritten.definition))


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Read a definition for what it says alone; raises `DefinitionError` with every mistake in it."""
    return load_definition(file, environment).config


@dataclass(frozen=True)
class Conversion:
    """A definition as v3: the object, its variables not filled in, and what its reader should know."""

    definition: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def yaml(self) -> str:
        """The definition as text."""
        return write_yaml(self.definition)


def convert_definition(file: Path, environment: Mapping[str, str] = os.environ) -> Conversion:
    """Rewrite a definition of any accepted format as v3; raises `DefinitionError` with every mistake in it.

    A secret that stands in the result is told in a warning. A definition with a reference to nothing cannot be judged
    further, and is rewritten.
    """
    rewritten = upgrade(file, read_definition(file))
    filled, unset = fill_references(rewritten.definition, References(environment, file.parent))
    if not unset:
        _accepted(file, rewritten, filled)
    elif rewritten.problems:
        raise DefinitionError(file, rewritten.all_problems([]))
    return Conversion(rewritten.definition, (*rewritten.warnings, *secrets_in(rewritten.definition)))


def _accepted(file: Path, rewritten: Rewritten, filled: dict[str, Any]) -> PipelineConfig:
    """Return the definition; raises `DefinitionError` with what the rewriting and the models find, a place once."""
    config, found = validate_definition(filled)
    told = {problem.path for problem in rewritten.problems}
    further = [problem for problem in rewritten.at_origin(found) if problem.path not in told]
    if config is None or rewritten.problems or further:
        raise DefinitionError(file, rewritten.all_problems(further))
    return config


def rewriting_warnings(file: Path) -> tuple[str, ...]:
    """Say what became of an older definition that its author may not expect; raises `DefinitionError`."""
    return upgrade(file, read_definition(file)).warnings


def report_rewriting(file: Path, report: Callable[[str], None]) -> None:
    """Say the same where a pipeline is started, a line each; raises `DefinitionError`."""
    for warning in rewriting_warnings(file):
        report(f"{file}: warning: {warning}")


def warnings(config: PipelineConfig) -> list[str]:
    """Say what a definition asks for that has no meaning here, or may have another one than it was meant to."""
    found = list(plan_stages(config).warnings)
    ignored = list(config.resources.without_meaning()) if config.resources else []
    if ignored:
        found.append(f"resources ({', '.join(ignored)}) has no effect here; Spark's settings (--conf) take its place")
    return found
