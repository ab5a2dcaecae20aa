"""Determine the kind of field that a transform's output is, which the mapping to columns needs; without Spark.

An `output_type` is a type of declared fields, or GlassFlow's `[]string`. Any other word converts nothing: the output
has the kind of the expression, and a value of unknown kind becomes a text, unless the type is `any`.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

from glassflow_dagster.definition.expressions.signatures import LISTS, Kind

# The kinds of declared fields; arrays, objects and values of any kind are carried as their JSON text.
OutputKind = Literal["string", "int", "uint", "float", "bool", "array", "map", "decimal", "bigint", "ubigint", "any"]

# An array whose elements are all written as texts.
TEXT_LIST = "[]string"

OUTPUT_KINDS: Mapping[str, OutputKind] = {
    **dict.fromkeys(("string", "bytes"), "string"),
    **dict.fromkeys(("int", "integer", "int8", "int16", "int32", "int64"), "int"),
    **dict.fromkeys(("uint", "uint8", "uint16", "uint32", "uint64"), "uint"),
    **dict.fromkeys(("float", "float32", "float64", "number"), "float"),
    **dict.fromkeys(("bool", "boolean"), "bool"),
    "array": "array",
    TEXT_LIST: "array",
    **dict.fromkeys(("map", "object"), "map"),
}

# Types of declared fields that convert nothing as an output_type, as in GlassFlow.
UNCONVERTED_WORDS = (
    "decimal", "int128", "int256", "uint128", "uint256", "any", "text", "uuid", "date", "datetime", "timestamp",
)  # fmt: skip

# Expression kind -> field kind of an output without conversion. A value of unknown kind becomes a text.
_UNCONVERTED: Mapping[Kind, OutputKind] = {
    "string": "string",
    "int": "int",
    "uint": "uint",
    "float": "float",
    "bool": "bool",
    "array": "array",
    **dict.fromkeys(LISTS, "array"),
    "map": "map",
    "decimal": "decimal",
    "bigint": "bigint",
    "ubigint": "ubigint",
    "any": "string",
    "time": "string",
    "nil": "string",
}

# Similarity (0 to 1) from which a word counts as a misspelt type: `flaot64` does, `datetime` does not.
_SIMILARITY = 0.75


def output_kind(checked_kind: Kind, output_type: str) -> OutputKind:
    """Return the kind of field that an output is.

    checked_kind: the kind of the checked expression, which `check_transform` ensures is no duration.
    output_type: as the definition declares it; may be empty.
    """
    if (checked_kind, output_type) == ("any", "any"):
        return "any"
    return OUTPUT_KINDS.get(output_type) or _UNCONVERTED[checked_kind]


def misspelt_output_type(output_type: str) -> str | None:
    """Return the type that an unknown output_type probably stands for; None when it is known, or like no type.

    GlassFlow accepts every word, so this is for a warning.
    """
    if output_type in OUTPUT_KINDS or output_type in UNCONVERTED_WORDS:
        return None
    close = get_close_matches(output_type.strip().lower(), OUTPUT_KINDS, n=1, cutoff=_SIMILARITY)
    return close[0] if close else None
