"""What functions there are: their parameters and results, known without Spark so that validation is quick.

GlassFlow has two vocabularies: expr's own functions, for which nil is an error, and its helpers, which answer nil
with a default. A filter there knows the first only, a transformation lets the helpers hide them. Here both are known
everywhere, and a name that is in both means in each place what it meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# The kind of an expression's value. `any` is a value inside an undeclared object or array, known only with the record;
# `strings` is a list of texts made by the expression itself; `time` is what date() gives.
# `decimal`, `bigint` and `ubigint` are fields whose digits no number here holds; they pass through as they are.
Kind = Literal[
    "string", "int", "uint", "float", "bool", "array", "map", "decimal", "bigint", "ubigint",
    "any", "strings", "time", "nil",
]  # fmt: skip

# What a parameter takes. `pattern` is a text that must stand in the expression as a literal.
Parameter = Literal[
    "text", "number", "anything", "anything or digits", "sized", "texts", "map", "literal", "secondslike"
]

_ANYTHING: frozenset[Kind] = frozenset({"string", "int", "uint", "float", "bool", "any", "nil"})

PARAMETER_KINDS: Mapping[Parameter, frozenset[Kind]] = {
    "text": frozenset({"string", "any", "nil"}),
    "number": frozenset({"int", "uint", "float", "any"}),
    "anything": _ANYTHING,
    "anything or digits": _ANYTHING | {"decimal", "bigint", "ubigint"},
    "sized": frozenset({"string", "array", "map", "strings", "any"}),
    "texts": frozenset({"strings", "array", "any", "nil"}),
    "map": frozenset({"map", "any", "nil"}),
    "literal": frozenset({"string"}),
    "secondslike": frozenset({"int", "uint", "float", "time", "nil"}),
}


@dataclass(frozen=True)
class Signature:
    """A function's parameters and the kind of its result.

    returns: `number` is int when all arguments are, else float. repeated: the last parameter takes any number of
    arguments. tolerant: nil is answered with a default, not with an error.
    """

    parameters: tuple[Parameter, ...]
    returns: Kind | Literal["number"]
    repeated: bool = False
    tolerant: bool = False


_TEXT_TO_TEXT = Signature(("text",), "string")

# expr's own.
BUILTINS: Mapping[str, Signature] = {
    "len": Signature(("sized",), "int"),
    "lower": _TEXT_TO_TEXT,
    "upper": _TEXT_TO_TEXT,
    "trim": _TEXT_TO_TEXT,
    "trimPrefix": Signature(("text", "text"), "string"),
    "trimSuffix": Signature(("text", "text"), "string"),
    "replace": Signature(("text", "text", "text"), "string"),
    "split": Signature(("text", "literal"), "strings"),
    "join": Signature(("texts", "text"), "string"),
    "hasPrefix": Signature(("text", "text"), "bool"),
    "hasSuffix": Signature(("text", "text"), "bool"),
    "int": Signature(("anything",), "int"),
    "float": Signature(("anything",), "float"),
    "string": Signature(("anything",), "string"),
    "abs": Signature(("number",), "number"),
    "floor": Signature(("number",), "float"),
    "ceil": Signature(("number",), "float"),
    "round": Signature(("number",), "float"),
    "min": Signature(("number",), "number", repeated=True),
    "max": Signature(("number",), "number", repeated=True),
    "date": Signature(("text",), "time"),
}

_TOLERANT_TEXT = Signature(("text",), "string", tolerant=True)
_TOLERANT_TEST = Signature(("text", "text"), "bool", tolerant=True)

# GlassFlow's.
HELPERS: Mapping[str, Signature] = {
    "parseQuery": Signature(("text",), "map", tolerant=True),
    "getQueryParam": Signature(("text", "text"), "string", tolerant=True),
    "getNestedParam": Signature(("text", "text"), "string", tolerant=True),
    "parseISO8601": Signature(("text",), "int", tolerant=True),
    "toDate": Signature(("secondslike",), "string", tolerant=True),
    "urlDecode": _TOLERANT_TEXT,
    "toString": Signature(("anything or digits",), "string", tolerant=True),
    "upper": _TOLERANT_TEXT,
    "lower": _TOLERANT_TEXT,
    "trim": _TOLERANT_TEXT,
    "containsStr": _TOLERANT_TEST,
    "hasPrefix": _TOLERANT_TEST,
    "hasSuffix": _TOLERANT_TEST,
    "split": Signature(("text", "literal"), "strings", tolerant=True),
    "join": Signature(("texts", "text"), "string", tolerant=True),
    "replace": Signature(("text", "text", "text"), "string", tolerant=True),
    "toInt": Signature(("anything",), "int", tolerant=True),
    "toFloat": Signature(("anything or digits",), "float", tolerant=True),
    "parseUserAgent": Signature(("text", "literal"), "string", tolerant=True),
    "waterfall": Signature(("anything",), "string", repeated=True, tolerant=True),
    "extractPathType": _TOLERANT_TEXT,
    "hasKeyPrefix": Signature(("map", "texts"), "bool", tolerant=True),
    "hasAnyKey": Signature(("map", "texts"), "bool", tolerant=True),
    "keys": Signature(("map",), "strings", tolerant=True),
}

FILTER_FUNCTIONS: Mapping[str, Signature] = {**HELPERS, **BUILTINS}
TRANSFORM_FUNCTIONS: Mapping[str, Signature] = {**BUILTINS, **HELPERS}

# Parts of a time, in UTC.
TIME_METHODS = ("Unix", "UnixMilli", "Year", "Month", "Day", "Hour", "Minute", "Second", "YearDay")
