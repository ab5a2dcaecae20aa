"""Load a definition file as a `PipelineConfig`, or raise one error with every mistake in it.

The steps: read the text, parse it, rewrite an older format as v3 (`formats/`), replace references such as `${VAR}`,
validate by models and rules, apply the servers of the environment. So only v3 has to be validated; a problem is
reported at its path in the file as it is written.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.definition_text import read_definition
from glassflow_dagster.definition.formats.rewrite import Rewritten
from glassflow_dagster.definition.formats.upgrade import upgrade
from glassflow_dagster.definition.model.origin import Origin
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.plain_secrets import secrets_in
from glassflow_dagster.definition.problems import BUILT, DefinitionError
from glassflow_dagster.definition.rules.otlp import otlp_warnings
from glassflow_dagster.definition.servers import with_connections_of, with_servers_of
from glassflow_dagster.definition.stages import plan_stages
from glassflow_dagster.definition.validation import validate_definition
from glassflow_dagster.definition.variables import References, fill_references
from glassflow_dagster.definition.yaml_text import write_yaml


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Load a definition file of any accepted format, YAML or JSON; raises `DefinitionError` with every mistake in it.

    environment: the variables that references name, and those that replace servers.
    """
    return _load(file, read_definition(file), environment, Origin(file))


def load_written(
    written: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> PipelineConfig:
    """Load a definition that is no file of its own; raises `DefinitionError` with every mistake in it.

    written: the definition as in a file, with references.
    file: the file that it is a part of, whose folder the paths of references are relative to, and which errors name;
        None for one that was built in Python.
    """
    return _load(file or Path(BUILT), dict(written), environment, Origin(file, written))


def load_content(content: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Load the `content` of a definition that was built in Python: what looks like a reference is none.

    Raises `DefinitionError` with every mistake in it.
    """
    rewritten = Rewritten(dict(content))
    resolved = with_connections_of(rewritten.definition, environment)
    return with_servers_of(_validated(Path(BUILT), rewritten, resolved), environment)


def _load(file: Path, raw: dict[str, Any], environment: Mapping[str, str], origin: Origin) -> PipelineConfig:
    """Return the definition in a parsed file; raises `DefinitionError`. origin: without warnings."""
    rewritten = upgrade(file, raw)
    resolved, unresolved = fill_references(rewritten.definition, References(environment, file.parent))
    if unresolved:
        raise DefinitionError(file, rewritten.all_problems(rewritten.at_origin(unresolved)))
    config = with_servers_of(_validated(file, rewritten, with_connections_of(resolved, environment)), environment)
    with_warnings = replace(
        origin, rewriting_warnings=rewritten.warnings, secret_warnings=secrets_in(rewritten.definition)
    )
    return config.with_origin(with_warnings)


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


def report_warnings(file: Path | None, texts: Iterable[str], report: Callable[[str], None]) -> None:
    """Report the warnings about a definition, one line each, with its file."""
    for text in texts:
        report(f"{file or BUILT}: warning: {text}")


def report_rewriting(config: PipelineConfig, report: Callable[[str], None]) -> None:
    """Report the warnings about rewriting a definition's older format, one line each."""
    report_warnings(config.origin.file, config.origin.rewriting_warnings, report)


def all_warnings(config: PipelineConfig) -> tuple[str, ...]:
    """Return all warnings about a definition: what is valid, but may be meant otherwise."""
    return (*config.origin.rewriting_warnings, *config.origin.secret_warnings, *warnings(config))


def warnings(config: PipelineConfig) -> list[str]:
    """Return warnings on settings that have no effect here, and on expressions that may be meant otherwise."""
    texts = [*plan_stages(config).warnings, *otlp_warnings(config)]
    ignored = list(config.resources.ignored_keys()) if config.resources else []
    if ignored:
        texts.append(f"resources ({', '.join(ignored)}) has no effect here; use Spark settings (--conf) instead")
    return texts
