"""Fields that a pipeline took up while it ran (`schema_evolution: add_columns`), and the definition with them.

The file of the definition stays as it is. Its effective definition has these fields as well: each is declared as
optional, goes through the last stateless transform, if there is one, and is mapped to a column of the sink's table.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.transforms import Output, Stateless
from glassflow_dagster.definition.rules.pipeline import problems

# What an expression can name; a field with another name cannot pass a stateless transform.
_IN_EXPRESSIONS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)

# Words of the language of expressions.
_WORDS = frozenset({"nil", "true", "false", "in", "not", "and", "or", "matches", "contains", "startsWith", "endsWith",
                    "let", "if", "else"})  # fmt: skip


@dataclass(frozen=True)
class AddedField:
    """A field of events, its type as in `schema_fields`, and the column that it fills."""

    name: str
    type: str
    column: str
    column_type: str


def with_added_fields(config: PipelineConfig, added: Iterable[AddedField]) -> PipelineConfig:
    """Return the definition with further fields, in their order.

    Those that it declares itself are left out, and those that it has no place for since it was edited.
    """
    for field in added:
        declared = {declared.name for declared in config.source.schema_fields}
        if field.name not in declared and not why_not_addable(config, field):
            config = _with(config, field)
    return config


def why_not_addable(config: PipelineConfig, field: AddedField) -> str:
    """Return why a definition cannot have a further field; '' if it can."""
    for transform in config.transforms:
        if not isinstance(transform, Stateless) or not transform.config.transforms:
            continue
        if not _IN_EXPRESSIONS.match(field.name) or field.name.split(".")[0] in _WORDS:
            return "a stateless transform cannot name it"
        hiding = {output.output_name for output in transform.config.transforms}
        if hiding & set(_with_parents(field.name)):
            return "a stateless transform has an output of this name"
    found = next(problems(_with(config, field)), None)
    return f"{found.path}: {found.text}" if found else ""


def written_with(definition: dict[str, Any], config: PipelineConfig, added: Sequence[AddedField]) -> dict[str, Any]:
    """Return a v3 definition, as it is written, with the fields that its `config` does not declare itself."""
    declared = {field.name for field in config.source.schema_fields}
    further = [field for field in added if field.name not in declared]
    fields = [part.model_dump(exclude_unset=True) for part in map(_schema_field, further)]
    mappings = [part.model_dump(exclude_unset=True) for part in map(_mapping, further)]
    source, sink = definition["sources"][0], definition["sink"]
    changed = {
        **definition,
        "sources": [{**source, "schema_fields": [*source["schema_fields"], *fields]}, *definition["sources"][1:]],
        "sink": {**sink, "mapping": [*sink["mapping"], *mappings]},
    }
    if (index := _last_stateless(config)) is not None:
        transform = definition["transforms"][index]
        outputs = [part.model_dump(exclude_unset=True) for part in map(_output, further)]
        inner = {**transform["config"], "transforms": [*transform["config"]["transforms"], *outputs]}
        before, after = definition["transforms"][:index], definition["transforms"][index + 1 :]
        changed["transforms"] = [*before, {**transform, "config": inner}, *after]
    return changed


def _with(config: PipelineConfig, field: AddedField) -> PipelineConfig:
    """Return the definition with one more field."""
    source = config.source.model_copy(update={"schema_fields": (*config.source.schema_fields, _schema_field(field))})
    sink = config.sink.model_copy(update={"mapping": (*config.sink.mapping, _mapping(field))})
    update: dict[str, Any] = {"sources": (source, *config.sources[1:]), "sink": sink}
    if (index := _last_stateless(config)) is not None:
        transform = config.transforms[index]
        assert isinstance(transform, Stateless)
        inner = transform.config.model_copy(update={"transforms": (*transform.config.transforms, _output(field))})
        changed = transform.model_copy(update={"config": inner})
        update["transforms"] = (*config.transforms[:index], changed, *config.transforms[index + 1 :])
    return config.model_copy(update=update)


def _schema_field(field: AddedField) -> SchemaField:
    return SchemaField(name=field.name, type=field.type, required=False)


def _mapping(field: AddedField) -> Mapping:
    return Mapping(name=field.name, column_name=field.column, column_type=field.column_type)


def _output(field: AddedField) -> Output:
    return Output(expression=field.name, output_name=field.name)


def _last_stateless(config: PipelineConfig) -> int | None:
    """Return the index of the transform whose outputs the sink maps; None without one."""
    indexes = [
        index
        for index, transform in enumerate(config.transforms)
        if isinstance(transform, Stateless) and transform.config.transforms
    ]
    return indexes[-1] if indexes else None


def _with_parents(name: str) -> Iterable[str]:
    """Yield a dotted name and the names of the objects around it."""
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))
