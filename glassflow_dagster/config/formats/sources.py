"""Topics of an older definition as v3's sources; fields that only expressions name are declared as `any`."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, At, Raw, keep
from glassflow_dagster.config.formats.older import evaluated_on, items_of, owner_id, part_of, topic_id, topics_of
from glassflow_dagster.config.model.source import METADATA_FIELDS
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.config.variables import VARIABLE
from glassflow_dagster.expressions.language.check import undeclared_names
from glassflow_dagster.expressions.language.errors import ExpressionError


def rewrite_source(raw: Raw, at: str, topic: Raw, undeclared: Mapping[str, str]) -> At:
    """Rewrite a topic, which stands at the path `at`, as a source. undeclared: its `undeclared_fields`."""
    source = part_of(raw, "source")
    named = "id" if topic.get("id") else "name"
    return At(
        at,
        {
            **keep(source, "source", "type"),
            "source_id": At(f"{at}.{named}", topic.get(named, ABSENT)),
            **keep(source, "source", "connection_params"),
            "topic": At(f"{at}.name", topic.get("name", ABSENT)),
            "schema_fields": _schema_fields(raw, at, topic, undeclared),
            **keep(topic, at, "schema_version", "schema_registry"),
            # GlassFlow reads an empty offset as none given.
            **keep(topic, at, "consumer_group_initial_offset", empty=("",)),
        },
    )


def _schema_fields(raw: Raw, at: str, topic: Raw, undeclared: Mapping[str, str]) -> At:
    """Give the fields of a topic, and after them those that only expressions name."""
    declared = _declared_fields(raw, at, topic)
    schema = part_of(raw, "schema")
    # A list that has the fields of other topics only is not what is missing.
    usual = "schema.fields" if schema and not schema.get("fields") else f"{at}.schema.fields"
    # Where nothing is declared, that is the mistake to tell.
    added = undeclared if declared else {}
    fields = [At(place, keep(entry, place, "name", "type")) for place, entry in declared]
    fields += [At(place, {"name": name, "type": "any", "required": False}) for name, place in added.items()]
    given = declared[0][0].rpartition("[")[0] if declared else usual
    return At(given, fields or ABSENT)


def _declared_fields(raw: Raw, at: str, topic: Raw) -> list[tuple[str, Raw]]:
    """Gather the fields of a topic from the three places that may declare them; a repetition counts once."""
    topics, schema = topics_of(raw), part_of(raw, "schema")
    places = [
        (f"{at}.schema.fields", items_of(part_of(topic, "schema"), "fields")),
        (f"{at}.schema_fields", items_of(topic, "schema_fields")),
        ("schema.fields", items_of(schema, "fields")),
    ]
    declared: list[tuple[str, Raw]] = []
    seen: list[tuple[Any, Any]] = []
    for place, fields in places:
        for index, entry in enumerate(fields):
            mine = place != "schema.fields" or (owner_id(entry, topics) == topic_id(topic))
            if mine and (entry.get("name"), entry.get("type")) not in seen:
                seen.append((entry.get("name"), entry.get("type")))
                declared.append((f"{place}[{index}]", entry))
    return declared


def undeclared_fields(raw: Raw, at: str, topic: Raw) -> dict[str, str]:
    """Give the fields that a topic's expressions read and nothing declares, each with the place that reads it first.

    GlassFlow adds them to the schema when it migrates a file; its expressions see the whole event.
    """
    declared = [*METADATA_FIELDS, *(str(entry.get("name")) for _, entry in _declared_fields(raw, at, topic))]
    found: dict[str, str] = {}
    for place, expression in _expressions(raw, topic):
        # What a variable holds is not known here; a number may stand nearly everywhere.
        text = VARIABLE.sub("0", expression)
        # What is no expression is told when v3's form is judged.
        with suppress(ExpressionError):
            for name in undeclared_names(text, declared):
                found.setdefault(name, place)
    return found


def _expressions(raw: Raw, topic: Raw) -> Iterator[tuple[str, str]]:
    """List what is evaluated on the events of a topic, by its place."""
    condition, stateless = part_of(raw, "filter"), part_of(raw, "stateless_transformation")
    outputs = items_of(part_of(stateless, "config"), "transform") if stateless.get("enabled") else []
    given = [
        ("filter.expression", condition, condition.get("expression") if condition.get("enabled") else None),
        *(
            (f"stateless_transformation.config.transform[{i}].expression", stateless, output.get("expression"))
            for i, output in enumerate(outputs)
        ),
    ]
    for place, part, expression in given:
        if isinstance(expression, str) and evaluated_on(raw, part) == topic_id(topic):
            yield place, expression


def undeclared_reads(raw: Raw, at: str, topic: Raw, undeclared: Mapping[str, str]) -> Iterator[Problem]:
    """Say which fields are read without a declaration: it may be a slip of the pen."""
    names = [str(entry.get("name")) for _, entry in _declared_fields(raw, at, topic)]
    for name, place in undeclared.items():
        close = get_close_matches(name, names, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "declare it with its type"
        yield Problem(place, f"{name!r} is not declared, so it may be any value, or missing (nil); {remedy}")
