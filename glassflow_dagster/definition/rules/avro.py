"""What an Avro schema in a definition must be, as far as it can be told without Avro's library.

Spark's JVM parses the schema (stream/scala/decode/AvroDecoder.scala); here it is checked that it is one, so that
`validate` finds a mistaken file.
"""

import json


def avro_problem(text: str) -> str | None:
    """Return what is wrong with the text of a schema; None for a record's schema."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        return f"is no Avro schema, which is JSON ({error}); write the schema, or ${{file:PATH}}"
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return 'is not the schema of a record; write {"type": "record", "name": ..., "fields": [...]}'
    fields = schema.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) and "type" in field for field in fields):
        return "has no list of fields, each with a name and a type; correct it"
    return None
