"""From a file to a `PipelineConfig`, or to every mistake in it at once.

`${VAR}` and `${VAR:-default}` are replaced in the parsed texts, not in the file, so that a secret with a quote or a
colon in it cannot change the definition's shape. Two variables replace what definitions say of the servers:
`GLASSFLOW_KAFKA_BROKERS` and `GLASSFLOW_CLICKHOUSE_URL`, so that a definition written for another place runs here.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import ValidationError

from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.rules import Problem, problems, suggestion
from glassflow_dagster.errors import GlassflowError

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")
_FORMS = {
    "pipeline_id": "may hold letters, digits, '-' and '_' only, and starts with a letter or digit",
    "checks.every": "is no cron schedule; write five fields, such as '*/15 * * * *'",
}
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


class DefinitionError(GlassflowError):
    """A definition that cannot run: one line per mistake, `file: field.path: what is wrong; what to do`."""

    def __init__(self, file: Path, found: list[Problem]) -> None:
        self.file = file
        self.problems = found
        super().__init__("\n".join(f"{file}: {p.path + ': ' if p.path else ''}{p.text}" for p in found))


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Read a definition, YAML or JSON; raises `DefinitionError` with every mistake in it."""
    raw = _read(file)
    unset: list[Problem] = []
    expanded = _expand(raw, environment, "", unset)
    if unset:
        raise DefinitionError(file, unset)
    try:
        config = PipelineConfig.model_validate(expanded)
    except ValidationError as error:
        raise DefinitionError(file, [_problem(e) for e in error.errors()]) from None
    found = list(problems(config))
    if found:
        raise DefinitionError(file, found)
    return _with_connections(config, environment)


def definition_files(folder: Path) -> list[Path]:
    """List the definitions of a folder, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in DEFINITION_SUFFIXES)


def find_definition(
    name: str, folder: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Path, PipelineConfig]:
    """Find a pipeline by its file or by its pipeline_id in a folder; raises `GlassflowError` when there is none."""
    path = Path(name)
    if path.suffix in DEFINITION_SUFFIXES:
        return path, load_pipeline(path, environment)
    files = definition_files(folder)
    for file in sorted(files, key=lambda f: f.stem != name):
        if _pipeline_id(file) == name:
            return file, load_pipeline(file, environment)
    known = [found for file in files if (found := _pipeline_id(file))]
    raise GlassflowError(f"{folder}/: no pipeline is called {name!r}; {suggestion(name, known or ['(none)'])}")


def warnings(config: PipelineConfig) -> list[str]:
    """Say what a definition asks for that has no meaning here."""
    if config.resources:
        return [f"resources ({', '.join(config.resources)}) has no effect here; Spark's settings take its place"]
    return []


def _pipeline_id(file: Path) -> str | None:
    try:
        raw = _read(file)
    except DefinitionError:
        return None
    return str(raw.get("pipeline_id"))


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DefinitionError(file, [Problem("", "no such file; check the path")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(file, [Problem("", f"cannot be read ({error}); make it a readable UTF-8 file")]) from None
    try:
        raw = yaml.safe_load(text)  # JSON is YAML
    except yaml.YAMLError as error:
        raise DefinitionError(file, [Problem("", f"is neither YAML nor JSON: {_one_line(str(error))}")]) from None
    if not isinstance(raw, dict):
        raise DefinitionError(file, [Problem("", "is no pipeline definition; it must be an object with pipeline_id")])
    return raw


def _expand(value: Any, environment: Mapping[str, str], path: str, unset: list[Problem]) -> Any:
    if isinstance(value, dict):
        return {k: _expand(v, environment, f"{path}.{k}" if path else str(k), unset) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, environment, f"{path}[{i}]", unset) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name not in environment and default is None:
            unset.append(Problem(path, f"variable {name} is not set; set it, or write ${{{name}:-default}}"))
        return environment.get(name, default or "")

    return _VARIABLE.sub(replace, value)


def _problem(error: Any) -> Problem:
    path = _path(error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return Problem(path, "unknown key; remove it or check its spelling")
    if kind == "missing":
        return Problem(path, "is missing; add it")
    if kind == "literal_error":
        # The value stays out of the text: under a mistaken key it may be a secret.
        return Problem(path, f"must be {context['expected']}")
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind == "string_pattern_mismatch":
        return Problem(path, _FORMS[path])
    return Problem(path, f"{_one_line(error['msg'])}; correct it")


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    return path


def _with_connections(config: PipelineConfig, environment: Mapping[str, str]) -> PipelineConfig:
    brokers = environment.get("GLASSFLOW_KAFKA_BROKERS")
    url = environment.get("GLASSFLOW_CLICKHOUSE_URL")
    sources, sink = config.sources, config.sink
    if brokers:
        plain = type(config.source.connection_params)(brokers=tuple(brokers.split(",")))
        sources = tuple(source.model_copy(update={"connection_params": plain}) for source in sources)
    if url:
        connection = sink.connection_params.model_copy(update=_clickhouse_address(url))
        sink = sink.model_copy(update={"connection_params": type(connection).model_validate(dict(connection))})
    return config.model_copy(update={"sources": sources, "sink": sink})


def _clickhouse_address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GlassflowError("GLASSFLOW_CLICKHOUSE_URL: is no address; write http://user:password@host:port")
    port = parts.port or (8443 if parts.scheme == "https" else 8123)
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
