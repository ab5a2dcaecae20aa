"""Rewrite the topics of an older definition as v3's sources; undeclared fields of expressions are declared as `any`."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from glassflow_dagster.definition.expressions.check import undeclared_names
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.formats.draft import ABSENT, Raw, WithOrigin, keep
from glassflow_dagster.definition.formats.older import evaluated_on, items_of, owner_id, part_of, topic_id, topics_of
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.variables import VARIABLE


def rewrite_source(raw: Raw, topic_path: str, topic: Raw, undeclared: Mapping[str, str]) -> WithOrigin:
    """Return a topic as a source for the v3 draft.

    topic_path: the topic's path.
    undeclared: the undeclared fields that its expressions read -> path of the expression.
    """
    source = part_of(raw, "source")
    id_key = "id" if topic.get("id") else "name"
    return WithOrigin(
        topic_path,
        {
            **keep(source, "source", "type"),
            "source_id": WithOrigin(f"{topic_path}.{id_key}", topic.get(id_key, ABSENT)),
            **keep(source, "source", "connection_params"),
            "topic": WithOrigin(f"{topic_path}.name", topic.get("name", ABSENT)),
            "schema_fields": _schema_fields(raw, topic_path, topic, undeclared),
            **keep(topic, topic_path, "schema_version", "schema_registry"),
            # An empty offset counts as missing, as in GlassFlow.
            **keep(topic, topic_path, "consumer_group_initial_offset", empty=("",)),
        },
    )


def _schema_fields(raw: Raw, topic_path: str, topic: Raw, undeclared: Mapping[str, str]) -> WithOrigin:
    """Return the schema_fields of a topic: the declared fields, then the undeclared ones as optional `any`.

    raw: the whole older definition.
    topic, topic_path: the topic's part of it, and the path of that part.
    undeclared: fields that expressions read and no list declares -> path of the expression.
    `ABSENT` when there are no fields, so that validation reports them as missing, at the path that is returned.
    """
    declared = _declared_fields(raw, topic_path, topic)
    schema = part_of(raw, "schema")
    # Fields may be declared in one list for all topics (schema.fields) or in one list per topic. Without any, the path
    # to report is the common list, unless that has the fields of other topics.
    usual_path = "schema.fields" if schema and not schema.get("fields") else f"{topic_path}.schema.fields"
    # Without any declared field, the missing schema is the problem to report.
    added = undeclared if declared else {}
    fields = [WithOrigin(path, keep(entry, path, "name", "type")) for path, entry in declared]
    fields += [WithOrigin(path, {"name": name, "type": "any", "required": False}) for name, path in added.items()]
    # `schema.fields[3]` -> `schema.fields`
    list_path = declared[0][0].rpartition("[")[0] if declared else usual_path
    return WithOrigin(list_path, fields or ABSENT)


def _declared_fields(raw: Raw, topic_path: str, topic: Raw) -> list[tuple[str, Raw]]:
    """Return path and entry of the fields that a topic declares, at any of three paths; without repetitions."""
    topics, schema = topics_of(raw), part_of(raw, "schema")
    lists = [
        (f"{topic_path}.schema.fields", items_of(part_of(topic, "schema"), "fields")),
        (f"{topic_path}.schema_fields", items_of(topic, "schema_fields")),
        ("schema.fields", items_of(schema, "fields")),
    ]
    declared: list[tuple[str, Raw]] = []
    seen: list[tuple[Any, Any]] = []
    for list_path, fields in lists:
        for index, entry in enumerate(fields):
            is_of_topic = list_path != "schema.fields" or (owner_id(entry, topics) == topic_id(topic))
            if is_of_topic and (entry.get("name"), entry.get("type")) not in seen:
                seen.append((entry.get("name"), entry.get("type")))
                declared.append((f"{list_path}[{index}]", entry))
    return declared


def undeclared_fields(raw: Raw, topic_path: str, topic: Raw) -> dict[str, str]:
    """Return the undeclared fields that a topic's expressions read -> the path of the first expression that reads it.

    GlassFlow adds these fields to the schema when it migrates a file, since its expressions see the whole event.
    """
    declared = [*METADATA_FIELDS, *(str(entry.get("name")) for _, entry in _declared_fields(raw, topic_path, topic))]
    undeclared: dict[str, str] = {}
    for path, expression in _expressions(raw, topic):
        # The value of a variable is unknown here; a number is valid nearly everywhere in an expression.
        text = VARIABLE.sub("0", expression)
        # An invalid expression is reported when the v3 definition is validated.
        with suppress(ExpressionError):
            for name in undeclared_names(text, declared):
                undeclared.setdefault(name, path)
    return undeclared


def _expressions(raw: Raw, topic: Raw) -> Iterator[tuple[str, str]]:
    """Yield path and text of each expression that is evaluated on the events of a topic."""
    condition, stateless = part_of(raw, "filter"), part_of(raw, "stateless_transformation")
    outputs = items_of(part_of(stateless, "config"), "transform") if stateless.get("enabled") else []
    expressions = [
        ("filter.expression", condition, condition.get("expression") if condition.get("enabled") else None),
        *(
            (f"stateless_transformation.config.transform[{i}].expression", stateless, output.get("expression"))
            for i, output in enumerate(outputs)
        ),
    ]
    for path, part, expression in expressions:
        if isinstance(expression, str) and evaluated_on(raw, part) == topic_id(topic):
            yield path, expression


def undeclared_reads(raw: Raw, topic_path: str, topic: Raw, undeclared: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning for each undeclared field that an expression reads: its name may be misspelt.

    undeclared: field -> path of the expression.
    topic_path: the topic's path.
    """
    declared = [str(entry.get("name")) for _, entry in _declared_fields(raw, topic_path, topic)]
    for name, path in undeclared.items():
        close = get_close_matches(name, declared, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "declare it with its type"
        yield Problem(path, f"{name!r} is not declared, so it may be any value, or missing (nil); {remedy}")
