"""Rules of the formats of values and keys: the schemas that they need, and the fields that belong to the key."""

from collections.abc import Iterator

from glassflow_dagster.definition.model.source import KEY_PREFIX, Encoding, Source
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.rules.avro import avro_problem


def format_problems(path: str, source: Source) -> Iterator[Problem]:
    """Yield the problems of a source's formats. path: of the source. Those of an OTLP source are checked elsewhere."""
    if source.signal:
        return
    if source.schema_ is not None and not source.encoding.has_schema:
        remedy = "remove it, or add format: avro or protobuf"
        yield Problem(f"{path}.schema", f"format {source.format} has no schema; {remedy}")
    else:
        yield from _schema_problems(f"{path}.format", f"{path}.schema", source, source.encoding)
    yield from _key_problems(path, source)


def _key_problems(path: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for fields of the key without its format, and the reverse; and for a schema without use."""
    of_key = [index for index, field in enumerate(source.schema_fields) if field.is_of_key]
    for index in of_key:
        field_path, name = f"{path}.schema_fields[{index}].name", source.schema_fields[index].name
        if name == KEY_PREFIX:
            yield Problem(
                field_path, f"{name!r} names no field of the key; write {KEY_PREFIX}NAME, or _key for all of it"
            )
        elif source.key_format is None:
            remedy = "add key_format: json, avro or protobuf to the source"
            yield Problem(field_path, f"{name!r} is a field of the record's key; {remedy}")
    encoding, schema = source.key_encoding, source.key_schema
    if encoding is None:
        if schema is not None:
            yield Problem(f"{path}.key_schema", "applies to key_format; add that, or remove it")
        return
    if not of_key:
        remedy = f"declare one in schema_fields, such as {KEY_PREFIX}id, or remove it"
        yield Problem(f"{path}.key_format", f"no field is one of the key; {remedy}")
    if encoding.has_schema:
        yield from _schema_problems(f"{path}.key_format", f"{path}.key_schema", source, encoding)
    elif schema is not None and (schema.file is not None or schema.message_type is not None):
        remedy = "remove it, or add key_format: avro or protobuf"
        yield Problem(f"{path}.key_schema", f"format {encoding.format} has no schema; {remedy}")
    elif schema is not None and source.schema_registry is None:
        yield Problem(f"{path}.key_schema", "of JSON applies to a source with a schema_registry; remove it")


def _schema_problems(format_path: str, schema_path: str, source: Source, encoding: Encoding) -> Iterator[Problem]:
    """Yield a problem for a schema that the format needs and has not, or that is none.

    format_path, schema_path: of the keys that set the encoding.
    """
    if not encoding.has_schema:
        return
    schema = encoding.schema
    if (schema is None or schema.file is None) and not encoding.of_registry:
        key = schema_path.rpartition(".")[-1]
        remedy = f"add {key}.file or schema_registry" if source.schema_registry is None else f"add {key}.file"
        yield Problem(format_path, f"{encoding.format} needs a schema; {remedy}")
    if schema is None:
        return
    if encoding.format == "avro" and schema.file is not None and (problem := avro_problem(schema.file)):
        yield Problem(f"{schema_path}.file", problem)
    if encoding.format == "avro" and schema.message_type is not None:
        yield Problem(f"{schema_path}.message_type", "applies to protobuf only; remove it")
    if encoding.of_registry and encoding.format == "protobuf" and schema.file is not None:
        remedy = "remove schema.file or schema_registry" if encoding.part == "value" else "remove it"
        yield Problem(f"{schema_path}.file", f"each record of Protobuf has one schema; {remedy}")
    # A key without an id leaves the registry to the values.
    if encoding.part == "value" and encoding.of_registry and schema.wire_format == "none":
        yield Problem(
            f"{schema_path}.wire_format", "none leaves nothing to ask the schema_registry; remove one of them"
        )
