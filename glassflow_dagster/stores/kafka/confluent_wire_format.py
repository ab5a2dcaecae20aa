"""Confluent's wire format outside Spark: a schema's id before the encoded event, or in a header of the record.

The id is a byte 0 and a number of four bytes, or a byte 1 and a UUID of 16. Drivers read it in the JVM
(stream/scala/decode/SchemaId.scala).
"""

import struct
import uuid
from collections.abc import Iterable
from typing import NamedTuple

Headers = Iterable[tuple[str, bytes | None]]

# Headers with the schema's id, which newer clients write in place of the bytes before the value, or the key.
VALUE_ID_HEADER, KEY_ID_HEADER = "__value_schema_id", "__key_schema_id"
_NUMBERED, _UNIQUE = 0, 1
# Bytes of the first byte and the id.
NUMBER_BYTES, UNIQUE_BYTES = 5, 17


class SplitValue(NamedTuple):
    """A schema's id, as text (a number, or a UUID with hyphens), and the bytes behind it.

    path: what follows the id in a header: Protobuf's indexes of a message, which otherwise begin `content`.
    """

    schema_id: str
    path: bytes
    content: bytes


def split_schema_id(value: bytes, headers: Headers) -> SplitValue | None:
    """Return the schema id and the encoded event of a value; None where there is no id."""
    in_header = [content for name, content in headers if name == VALUE_ID_HEADER]
    # Of several headers the last one counts; one without a value says that the id is in the value.
    if in_header and in_header[-1]:
        found = _split(in_header[-1])
        return found and SplitValue(found.schema_id, found.content, value)
    return _split(value)


def _split(content: bytes) -> SplitValue | None:
    first = content[:1]
    if first == bytes([_NUMBERED]) and len(content) >= NUMBER_BYTES:
        number = struct.unpack(">I", content[1:NUMBER_BYTES])[0]
        return SplitValue(str(number), b"", content[NUMBER_BYTES:])
    if first == bytes([_UNIQUE]) and len(content) >= UNIQUE_BYTES:
        unique = uuid.UUID(bytes=content[1:UNIQUE_BYTES])
        return SplitValue(str(unique), b"", content[UNIQUE_BYTES:])
    return None
