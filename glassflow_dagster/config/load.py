"""Load a definition file as a `PipelineConfig`, or raise one error with every mistake in it.

The steps: read the text, parse it, rewrite an older format as v3 (`formats/`), replace references such as `${VAR}`,
validate by models and rules, apply the servers of the environment. So only v3 has to be validated; a problem is
reported at its path in the file as it is written.
"""

import os
from collections.abc import Callable, Iterable, Mapping
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
    """A valid definition and its file, and the warnings about rewriting an older format and secrets in plain text."""

    file: Path
    config: PipelineConfig
    rewriting_warnings: tuple[str, ...]
    secret_warnings: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings: what is valid, but may be meant otherwise."""
        return (*self.rewriting_warnings, *self.secret_warnings, *warnings(self.config))

    def report_rewriting(self, report: Callable[[str], None]) -> None:
        """Report the warnings about rewriting an older format, one line each."""
        report_warnings(self.file, self.rewriting_warnings, report)


def load_definition(file: Path, environment: Mapping[str, str] = os.environ) -> LoadedDefinition:
    """Load a definition with its warnings; raises `DefinitionError` with every mistake in it."""
    rewritten = upgrade(file, read_definition(file))
    resolved, unresolved = fill_references(rewritten.definition, References(environment, file.parent))
    if unresolved:
        raise DefinitionError(file, rewritten.all_problems(rewritten.at_origin(unresolved)))
    config = with_servers_of(_validated(file, rewritten, resolved), environment)
    return LoadedDefinition(file, config, rewritten.warnings, secrets_in(rewritten.definition))


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Load a definition without its warnings; raises `DefinitionError` with every mistake in it."""
    return load_definition(file, environment).config


@dataclass(frozen=True)
class Conversion:
    """A definition rewritten as v3, its references not replaced, and the warnings for its author."""

    definition: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def yaml(self) -> str:
        """The definition as YAML."""
        return write_yaml(self.definition)


def convert_definition(file: Path, environment: Mapping[str, str] = os.environ) -> Conversion:
    """Rewrite a definition of any accepted format as v3; raises `DefinitionError` with every mistake in it.

    Secrets in plain text are warnings. A definition with an unresolvable reference, such as an unset variable, is
    converted without validation.
    """
    rewritten = upgrade(file, read_definition(file))
    resolved, unresolved = fill_references(rewritten.definition, References(environment, file.parent))
    if not unresolved:
        _validated(file, rewritten, resolved)
    elif rewritten.problems:
        raise DefinitionError(file, rewritten.all_problems([]))
    return Conversion(rewritten.definition, (*rewritten.warnings, *secrets_in(rewritten.definition)))


def _validated(file: Path, rewritten: Rewritten, resolved: dict[str, Any]) -> PipelineConfig:
    """Return the definition; raises `DefinitionError` with the problems of rewriting and of validation.

    resolved: the v3 definition, its references replaced. A path that rewriting has reported is not reported again.
    """
    config, problems_of_v3 = validate_definition(resolved)
    reported = {problem.path for problem in rewritten.problems}
    new_problems = [problem for problem in rewritten.at_origin(problems_of_v3) if problem.path not in reported]
    if config is None or rewritten.problems or new_problems:
        raise DefinitionError(file, rewritten.all_problems(new_problems))
    return config


def report_warnings(file: Path, texts: Iterable[str], report: Callable[[str], None]) -> None:
    """Report the warnings about a definition's file, one line each."""
    for text in texts:
        report(f"{file}: warning: {text}")


def warnings(config: PipelineConfig) -> list[str]:
    """Return warnings on settings that have no effect here, and on expressions that may be meant otherwise."""
    texts = list(plan_stages(config).warnings)
    ignored = list(config.resources.ignored_keys()) if config.resources else []
    if ignored:
        texts.append(f"resources ({', '.join(ignored)}) has no effect here; use Spark settings (--conf) instead")
    return texts
