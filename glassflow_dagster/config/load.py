"""From a file to a `PipelineConfig`, or to every mistake in it at once.

References (`${VAR}`, `${VAR:-default}`, `${file:PATH}`) are replaced in the parsed texts, not in the file, so that a
secret with a quote or a colon in it cannot change the definition's shape. Two variables replace what definitions say
of the servers: `GLASSFLOW_KAFKA_BROKERS` and `GLASSFLOW_CLICKHOUSE_URL`, so that a definition written for another place
runs here.

Older formats are rewritten as v3 first (`legacy.py`), so that there is one format to judge; what is wrong is told at
its place in the file as it was written.
"""

import copy
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import ValidationError

from glassflow_dagster.config.legacy import Rewritten, check_shape, is_older, rewrite
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.problems import Problem, suggestion
from glassflow_dagster.config.rules import problems
from glassflow_dagster.config.stages import plan_stages
from glassflow_dagster.config.variables import References, holds_variable
from glassflow_dagster.config.yaml_text import AliasError, read_yaml, write_yaml
from glassflow_dagster.errors import GlassflowError

# What connection_params and schema_registry may hold that nobody else should read.
SECRETS = ("password", "client_key", "kerberos_keytab", "api_secret")
# A sign is quoted by the YAML reader to be shown; anything longer may be what somebody wrote as a value.
_LONG_QUOTE = re.compile(r"'[^']{5,}'")
_IGNORED = "unknown key, which is ignored; remove it or check its spelling"
DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")
# Where a location names which of several models was tried: transforms, index, type.
_TYPE_PLACE = 2
_FORMS = {
    "pipeline_id": "may hold letters, digits, '-' and '_' only, and starts with a letter or digit",
    "checks.every": "is no cron schedule; write five fields, such as '*/15 * * * *'",
}
_TEXTS = {
    "extra_forbidden": "unknown key; remove it or check its spelling",
    "missing": "is missing; add it",
    "model_type": "must be an object with keys; correct it",
    "dict_type": "must be an object with keys; correct it",
    "too_short": "is empty; list at least one",
}


class DefinitionError(GlassflowError):
    """A definition that cannot run: one line per mistake, `file: field.path: what is wrong; what to do`."""

    def __init__(self, file: Path, found: list[Problem]) -> None:
        self.file = file
        self.problems = found
        super().__init__("\n".join(f"{file}: {p.path + ': ' if p.path else ''}{p.text}" for p in found))


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Read a definition, YAML or JSON; raises `DefinitionError` with every mistake in it."""
    rewritten = _as_v3(file)
    unset: list[Problem] = []
    expanded = _expand(rewritten.definition, References(environment, file.parent), "", unset)
    if unset:
        raise DefinitionError(file, _everything(rewritten, _at_origin(rewritten, unset)))
    config = _judged(file, rewritten, expanded)
    return _with_connections(config, environment)


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
    rewritten = _as_v3(file)
    noted = (*rewritten.warnings, *_secrets_in(rewritten.definition))
    unset: list[Problem] = []
    expanded = _expand(rewritten.definition, References(environment, file.parent), "", unset)
    if unset:
        if rewritten.problems:
            raise DefinitionError(file, _everything(rewritten, []))
        return Conversion(rewritten.definition, noted)
    _judged(file, rewritten, expanded)
    return Conversion(rewritten.definition, noted)


def _as_v3(file: Path) -> Rewritten:
    raw = _read(file)
    if not is_older(raw):
        return Rewritten(raw)
    unknown = []
    try:
        check_shape(raw)
    except ValidationError as error:
        causes = _causes(error)
        if any(e["type"] != "extra_forbidden" for e in causes):
            raise DefinitionError(file, [_problem(e) for e in causes]) from None
        unknown = [e["loc"] for e in causes]
    rewritten = rewrite(_without(raw, unknown))
    return _ignoring_rest(replace(rewritten, ignored=tuple(Problem(_path(place), _IGNORED) for place in unknown)))


def _ignoring_rest(rewritten: Rewritten) -> Rewritten:
    """Leave out the unknown keys of those parts of an older file that v3 has as they were."""
    try:
        PipelineConfig.model_validate(rewritten.definition)
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
        found = _at_origin(rewritten, [Problem(_path(place), _IGNORED) for place in unknown])
        rest = _without(rewritten.definition, [_keys(place) for place in unknown])
        return replace(rewritten, definition=rest, ignored=(*rewritten.ignored, *found))
    return rewritten


def _judged(file: Path, rewritten: Rewritten, expanded: dict[str, Any]) -> PipelineConfig:
    """Give the definition; raises `DefinitionError` with what the rewriting and the models find, a place once."""
    config, found = None, []
    try:
        config = PipelineConfig.model_validate(expanded)
        found = list(problems(config))
    except ValidationError as error:
        causes = _causes(error)
        found = [*(_problem(e) for e in causes), *_beside(expanded, causes)]
    told = {problem.path for problem in rewritten.problems}
    further = [p for p in _at_origin(rewritten, found) if p.path not in told]
    if config is None or rewritten.problems or further:
        raise DefinitionError(file, _everything(rewritten, further))
    return config


def _everything(rewritten: Rewritten, further: list[Problem]) -> list[Problem]:
    """Give all that is to be told of a definition that is refused: an ignored key may be what is missing elsewhere."""
    # One older key may have become several of v3's, each with the same mistake.
    return list(dict.fromkeys([*rewritten.ignored, *rewritten.problems, *further]))


def _beside(definition: dict[str, Any], causes: list[Any]) -> list[Problem]:
    """Find what is wrong beside what the models refuse, where it can be judged without that.

    It can without unknown keys, and without the values of optional keys that no rule looks at. Where more is missing,
    every further problem would be a guess.
    """
    places = [_keys(e["loc"]) for e in causes]
    if not all(e["type"] == "extra_forbidden" or not _is_looked_at(e["loc"]) for e in causes):
        return []
    try:
        config = PipelineConfig.model_validate(_without(definition, places))
    except ValidationError:
        return []
    return list(problems(config))


def _is_looked_at(location: tuple[str | int, ...]) -> bool:
    return location[0] in ("transforms", "resources", "join") or bool(
        {"schema_fields", "mapping", "create_table"} & {*location}
    )


def _without(definition: dict[str, Any], places: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """Copy a definition without the keys at certain places; what is no key of an object stays."""
    rest = copy.deepcopy(definition)
    for *path, last in places:
        owner: Any = rest
        for part in path:
            owner = owner[part]
        if isinstance(owner, dict):
            owner.pop(last, None)
    return rest


def _at_origin(rewritten: Rewritten, found: list[Problem]) -> list[Problem]:
    """Tell problems at their place in the file; a file in v3 is its own origin."""
    return [rewritten.origin(problem) for problem in found] if rewritten.origins else found


def secret_warnings(file: Path) -> tuple[str, ...]:
    """Name the secrets that stand in a definition as they are; raises `DefinitionError`."""
    return _secrets_in(_as_v3(file).definition)


def _secrets_in(definition: dict[str, Any]) -> tuple[str, ...]:
    """Name the secrets in a v3 definition, whatever else it holds, that are no references."""
    sources = definition.get("sources")
    places = [(f"sources[{i}]", s) for i, s in enumerate(sources if isinstance(sources, list) else ())]
    found = []
    for path, part in (*places, ("sink", definition.get("sink"))):
        for name in ("connection_params", "schema_registry"):
            parameters = part.get(name) if isinstance(part, dict) else None
            for key in SECRETS:
                value = parameters.get(key) if isinstance(parameters, dict) else None
                if isinstance(value, str) and value and not holds_variable(value):
                    found.append(f"{path}.{name}.{key}")
    return tuple(f"{place}: stands in the file as it is; write ${{VAR}} or ${{file:PATH}} instead" for place in found)


def rewriting_warnings(file: Path) -> tuple[str, ...]:
    """Say what became of an older definition that its author may not expect; raises `DefinitionError`."""
    return _as_v3(file).warnings


def report_rewriting(file: Path, report: Callable[[str], None]) -> None:
    """Say the same where a pipeline is started, a line each; raises `DefinitionError`."""
    for warning in rewriting_warnings(file):
        report(f"{file}: warning: {warning}")


def definition_files(folder: Path) -> list[Path]:
    """List the definitions of a folder, by name; hidden files are those of editors."""
    if not folder.is_dir():
        return []
    shown = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path for path in shown if path.suffix in DEFINITION_SUFFIXES)


def find_definition(
    name: str, folder: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Path, PipelineConfig]:
    """Find a pipeline by its file or by its pipeline_id in a folder; raises `GlassflowError` when there is none."""
    path = Path(name)
    if path.suffix in DEFINITION_SUFFIXES:
        return path, load_pipeline(path, environment)
    files = definition_files(folder)
    for file in sorted(files, key=lambda f: f.stem != name):
        if pipeline_id(file) == name:
            return file, load_pipeline(file, environment)
    known = [found for file in files if (found := pipeline_id(file))]
    raise GlassflowError(f"{folder}/: no pipeline is called {name!r}; {suggestion(name, known or ['(none)'])}")


def pipeline_id(file: Path) -> str | None:
    """Give the name that a file's pipeline has, whatever else is wrong with it; None where it has none."""
    try:
        named = _read(file).get("pipeline_id")
    except DefinitionError:
        return None
    return None if named is None else str(named)


def warnings(config: PipelineConfig) -> list[str]:
    """Say what a definition asks for that has no meaning here, or may have another one than it was meant to."""
    found = list(plan_stages(config).warnings)
    ignored = list(config.resources.without_meaning()) if config.resources else []
    if ignored:
        found.append(f"resources ({', '.join(ignored)}) has no effect here; Spark's settings (--conf) take its place")
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DefinitionError(file, [Problem("", "no such file; check the path")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(file, [Problem("", f"cannot be read ({error}); make it a readable UTF-8 file")]) from None
    try:
        raw = _parsed(text)
    except AliasError as error:
        raise DefinitionError(file, [Problem("", str(error))]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: what looks like a date or number and is none, such as 2024-99-99.
        raise DefinitionError(file, [Problem("", f"is neither YAML nor JSON: {_unreadable(error)}")]) from None
    except RecursionError:
        raise DefinitionError(file, [Problem("", "is nested too deeply; it is no pipeline definition")]) from None
    if not isinstance(raw, dict):
        raise DefinitionError(file, [Problem("", "is no pipeline definition; it must be an object with pipeline_id")])
    return raw


def _unreadable(error: Exception) -> str:
    """Say what cannot be parsed, and where; none of the file's own text, which may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return _one_line(_LONG_QUOTE.sub("'...'", str(error)))
    mark, said = error.problem_mark, _LONG_QUOTE.sub("'...'", f"{error.context or ''} {error.problem or ''}")
    return f"{_one_line(said)}, line {mark.line + 1}, column {mark.column + 1}; correct it"


def _parsed(text: str) -> Any:
    # JSON is YAML but for tabs and pairs of escaped surrogates, which the YAML reader does not take.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return read_yaml(text)


def _expand(value: Any, references: References, path: str, unset: list[Problem]) -> Any:
    if isinstance(value, dict):
        return {k: _expand(v, references, f"{path}.{k}" if path else str(k), unset) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, references, f"{path}[{i}]", unset) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    filled, wrong = references.fill(value)
    unset += [Problem(path, text) for text in wrong]
    return filled


def _causes(error: ValidationError) -> list[Any]:
    """Leave out that a list is too short where that follows from its items: pydantic counts only the good ones."""
    found = error.errors()
    places = [e["loc"] for e in found]
    return [
        e
        for e in found
        if e["type"] != "too_short" or not any(at != e["loc"] and at[: len(e["loc"])] == e["loc"] for at in places)
    ]


def _problem(error: Any) -> Problem:
    path = _path(error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TEXTS:
        return Problem(path, _TEXTS[kind])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return Problem(f"{path}.type", "must be 'dedup', 'filter' or 'stateless'")
    if kind == "literal_error":
        # The value stays out of the text: under a mistaken key it may be a secret.
        return Problem(path, f"must be {context['expected']}")
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind == "string_pattern_mismatch":
        return Problem(path, _FORMS[path])
    return Problem(path, f"{_one_line(error['msg'])}; correct it")


def _keys(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Leave out the transform's type, which pydantic names behind its place, and which is no key."""
    return location[:_TYPE_PLACE] + location[_TYPE_PLACE + 1 :] if location[0] == "transforms" else location


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for part in _keys(location):
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    return path


def _with_connections(config: PipelineConfig, environment: Mapping[str, str]) -> PipelineConfig:
    brokers = environment.get("GLASSFLOW_KAFKA_BROKERS")
    url = environment.get("GLASSFLOW_CLICKHOUSE_URL")
    sources, sink = config.sources, config.sink
    if brokers:
        plain = type(config.connection)(brokers=tuple(brokers.split(",")))
        sources = tuple(source.model_copy(update={"connection_params": plain}) for source in sources)
    if url:
        connection = sink.connection_params.model_copy(update=clickhouse_address(url, "GLASSFLOW_CLICKHOUSE_URL"))
        sink = sink.model_copy(update={"connection_params": type(connection).model_validate(dict(connection))})
    return config.model_copy(update={"sources": sources, "sink": sink})


def clickhouse_address(url: str, given_as: str) -> dict[str, Any]:
    """Read `http://user:password@host:port` as connection_params; the error names where the URL was given."""
    problem = f"{given_as}: is no address; write http://user:password@host:port"
    try:
        parts = urlsplit(url)
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
    except ValueError:
        raise GlassflowError(problem) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GlassflowError(problem)
    return {
        "host": parts.hostname,
        "port": port,
        "http_port": port,
        "username": unquote(parts.username or "default"),
        "password": unquote(parts.password or ""),
        "secure": parts.scheme == "https",
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
