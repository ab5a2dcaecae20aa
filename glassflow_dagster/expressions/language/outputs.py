"""What kind of field a transformation's output is, for the mapping to columns; known without Spark.

The words are those of declared fields, and `[]string` as GlassFlow has it. Any other word of a definition converts
nothing: the output has the kind that the expression gives.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

from glassflow_dagster.expressions.language.signatures import LISTS, Kind

# The kinds of declared fields; arrays and objects are carried as their JSON text.
OutputKind = Literal["string", "int", "uint", "float", "bool", "array", "map", "decimal", "bigint", "ubigint"]

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

# Declared types that convert nothing here, as in GlassFlow: such a field passes through, any other value stays itself.
UNCONVERTED_WORDS = (
    "decimal", "int128", "int256", "uint128", "uint256", "any", "text", "uuid", "date", "datetime", "timestamp",
)  # fmt: skip

# What an output is whose type names no conversion. A value of unknown kind is written as a text, whatever it holds.
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

# How alike a word must be to a type's name to be taken for a slip of the pen: `flaot64` is, `datetime` is not.
_ALIKE = 0.75


def output_kind(checked_kind: Kind, output_type: str) -> OutputKind:
    """Give the kind of field that an output is.

    checked_kind: the kind of the checked expression; check_transform lets no duration through. output_type: the
    definition's word, which may be empty.
    """
    return OUTPUT_KINDS.get(output_type) or _UNCONVERTED[checked_kind]


def misspelt_output_type(output_type: str) -> str | None:
    """Give the type that an unknown word was probably meant to be, or None.

    GlassFlow takes every word, so this is for a warning.
    """
    if output_type in OUTPUT_KINDS or output_type in UNCONVERTED_WORDS:
        return None
    close = get_close_matches(output_type.strip().lower(), OUTPUT_KINDS, n=1, cutoff=_ALIKE)
    return close[0] if close else None
