"""The functions of expressions: their parameters and results, without Spark so that validation is quick.

GlassFlow has two sets of functions: expr's own, for which nil is an error, and its helpers, which return a default for
nil. GlassFlow's filters know only the first set; in its transforms a helper hides the function of the same name. Here
both sets can be called everywhere; a name that is in both is expr's in a filter, and the helper in a transform. A few
functions are this project's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# The kind of an expression's value.
# - `any`: its type depends on the record: a value inside an undeclared object or array, or a field of type any;
# - `strings`, `ints`, `floats`, `bools`, `values` (elements of any kind, also mixed): lists that an expression makes;
# - `time`: the result of date() and now(); `duration`: the difference of two times;
# - `decimal`, `bigint`, `ubigint`: fields with more digits than any number of this language holds; they pass through.
Kind = Literal[
    "string",
    "int",
    "uint",
    "float",
    "bool",
    "array",
    "map",
    "decimal",
    "bigint",
    "ubigint",
    "any",
    "strings",
    "ints",
    "floats",
    "bools",
    "values",
    "time",
    "duration",
    "nil",
]

# List that an expression makes -> kind of its elements.
LISTS: Mapping[Kind, Kind] = {"strings": "string", "ints": "int", "floats": "float", "bools": "bool", "values": "any"}
# Every kind that may have elements -> kind of its elements.
ELEMENTS: Mapping[Kind, Kind] = {**LISTS, "array": "any", "any": "any"}

# What a parameter accepts; PARAMETER_KINDS has the kinds. `literal` is a text that must be a literal.
Parameter = Literal[
    "text",
    "number",
    "integer",
    "anything",
    "anything or digits",
    "scalar or list",
    "value",
    "sized",
    "texts",
    "list",
    "number list",
    "numbers",
    "map",
    "literal",
    "secondslike",
    "whole number",
]

_LISTED: frozenset[Kind] = frozenset(ELEMENTS)
_NUMBER_LISTS: frozenset[Kind] = _LISTED - {"strings", "bools"}
_SCALARS: frozenset[Kind] = frozenset({"string", "int", "uint", "float", "bool", "any", "nil"})

PARAMETER_KINDS: Mapping[Parameter, frozenset[Kind]] = {
    "text": frozenset({"string", "any", "nil"}),
    "number": frozenset({"int", "uint", "float", "any"}),
    "integer": frozenset({"int", "uint"}),
    "anything": _SCALARS,
    "anything or digits": _SCALARS | {"decimal", "bigint", "ubigint"},
    "scalar or list": _SCALARS | _LISTED,
    "value": _SCALARS | _LISTED | {"map"},
    "sized": _LISTED | {"string", "map"},
    "texts": frozenset({"strings", "values", "array", "any", "nil"}),
    "list": _LISTED,
    "number list": _NUMBER_LISTS,
    "numbers": _NUMBER_LISTS | {"int", "uint", "float"},
    "map": frozenset({"map", "any", "nil"}),
    "literal": frozenset({"string"}),
    "secondslike": frozenset({"int", "uint", "float", "time", "nil"}),
    "whole number": frozenset({"int", "uint", "any", "nil"}),
}


@dataclass(frozen=True)
class Signature:
    """A function's parameters and the kind of its result.

    returns: a kind; or `number`: int when all arguments (or the elements of a list) are, else float; `element`: an
        element of the first argument; `same`: a list like the first argument; `joined`: a list of the arguments' common
        kind.
    repeated: the last parameter takes one or more arguments.
    optional: how many of the last parameters may be omitted.
    tolerant: nil results in a default, not in an error.
    """

    parameters: tuple[Parameter, ...]
    returns: Kind | Literal["number", "element", "same", "joined"]
    repeated: bool = False
    optional: int = 0
    tolerant: bool = False


_TEXT_TO_TEXT = Signature(("text",), "string")

# expr's own functions.
BUILTINS: Mapping[str, Signature] = {
    "len": Signature(("sized",), "int"),
    "lower": _TEXT_TO_TEXT,
    "upper": _TEXT_TO_TEXT,
    "trim": Signature(("text", "text"), "string", optional=1),
    "trimPrefix": Signature(("text", "text"), "string"),
    "trimSuffix": Signature(("text", "text"), "string"),
    "replace": Signature(("text", "text", "text"), "string"),
    "split": Signature(("text", "literal"), "strings"),
    "join": Signature(("texts", "text"), "string", optional=1),
    "repeat": Signature(("text", "integer"), "string"),
    "indexOf": Signature(("text", "text"), "int"),
    "lastIndexOf": Signature(("text", "text"), "int"),
    "hasPrefix": Signature(("text", "text"), "bool"),
    "hasSuffix": Signature(("text", "text"), "bool"),
    "int": Signature(("anything",), "int"),
    "float": Signature(("anything",), "float"),
    "string": Signature(("anything",), "string"),
    "abs": Signature(("number",), "number"),
    "floor": Signature(("number",), "float"),
    "ceil": Signature(("number",), "float"),
    "round": Signature(("number",), "float"),
    "min": Signature(("numbers",), "number", repeated=True),
    "max": Signature(("numbers",), "number", repeated=True),
    "sum": Signature(("number list",), "number"),
    "mean": Signature(("number list",), "float"),
    "median": Signature(("number list",), "float"),
    "count": Signature(("list",), "int"),
    "first": Signature(("list",), "element"),
    "last": Signature(("list",), "element"),
    "take": Signature(("list", "integer"), "same"),
    "reverse": Signature(("list",), "same"),
    "sort": Signature(("list", "literal"), "same", optional=1),
    "uniq": Signature(("list",), "same"),
    "flatten": Signature(("list",), "same"),
    "concat": Signature(("list",), "joined", repeated=True),
    "values": Signature(("map",), "values"),
    "toPairs": Signature(("map",), "values"),
    "toJSON": Signature(("value",), "string"),
    "fromJSON": Signature(("text",), "any"),
    "toBase64": _TEXT_TO_TEXT,
    "fromBase64": _TEXT_TO_TEXT,
    "date": Signature(("text",), "time"),
    "now": Signature((), "time"),
    "duration": Signature(("literal",), "duration"),
}

_TOLERANT_TEXT = Signature(("text",), "string", tolerant=True)
_TOLERANT_TEST = Signature(("text", "text"), "bool", tolerant=True)

# GlassFlow's helpers.
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
    "trim": Signature(("text", "text"), "string", optional=1, tolerant=True),
    "containsStr": _TOLERANT_TEST,
    "hasPrefix": _TOLERANT_TEST,
    "hasSuffix": _TOLERANT_TEST,
    "split": Signature(("text", "literal"), "strings", tolerant=True),
    "join": Signature(("texts", "text"), "string", optional=1, tolerant=True),
    "replace": Signature(("text", "text", "text"), "string", tolerant=True),
    "toInt": Signature(("anything",), "int", tolerant=True),
    "toFloat": Signature(("anything or digits",), "float", tolerant=True),
    "parseUserAgent": Signature(("text", "literal"), "string", tolerant=True),
    "waterfall": Signature(("scalar or list",), "string", repeated=True, tolerant=True),
    "extractPathType": _TOLERANT_TEXT,
    "hasKeyPrefix": Signature(("map", "texts"), "bool", tolerant=True),
    "hasAnyKey": Signature(("map", "texts"), "bool", tolerant=True),
    "keys": Signature(("map",), "strings", tolerant=True),
}

# This project's own functions: each turns whole numbers since 1970 into the text of a time; nil for nil.
FROM_UNIX: Mapping[str, Signature] = dict.fromkeys(
    ("fromUnix", "fromUnixMilli", "fromUnixMicro", "fromUnixNano", "fromUnixDay"),
    Signature(("whole number",), "string", tolerant=True),
)

FILTER_FUNCTIONS: Mapping[str, Signature] = {**HELPERS, **BUILTINS, **FROM_UNIX}
TRANSFORM_FUNCTIONS: Mapping[str, Signature] = {**BUILTINS, **HELPERS, **FROM_UNIX}

# Functions that evaluate a predicate for every element of a list -> their result; `list`: of the predicate's values.
PREDICATES: Mapping[str, Kind | Literal["element", "same", "list", "number"]] = {
    "any": "bool",
    "all": "bool",
    "none": "bool",
    "one": "bool",
    "filter": "same",
    "map": "list",
    "count": "int",
    "sum": "number",
    "find": "element",
    "findLast": "element",
    "findIndex": "int",
    "findLastIndex": "int",
}

# Functions of expr that are not supported -> what to write instead.
UNSUPPORTED: Mapping[str, str] = {
    "reduce": "use sum, min, max, count or join",
    "groupBy": "group in ClickHouse",
    "sortBy": "map to the values to compare, then sort",
    "fromPairs": "write an object, as in {name: value}",
    "splitAfter": "use split",
    "timezone": "all times are in UTC",
    "type": "convert with toString, toFloat or toInt",
    "bitand": "use + - * / %",
    "bitor": "use + - * / %",
    "bitxor": "use + - * / %",
    "bitnand": "use + - * / %",
    "bitnot": "use + - * / %",
    "bitshl": "use * with a power of two",
    "bitshr": "use floor(.. / ..) with a power of two",
    "bitushr": "use floor(.. / ..) with a power of two",
}

# Methods of a time (in UTC) and of a duration -> the kind of their result.
METHODS: Mapping[Kind, Mapping[str, Kind]] = {
    "time": dict.fromkeys(
        ("Unix", "UnixMilli", "UnixMicro", "Year", "Month", "Day", "Hour", "Minute", "Second", "YearDay", "Weekday"),
        "int",
    ),
    "duration": {
        **dict.fromkeys(("Hours", "Minutes", "Seconds"), "float"),
        **dict.fromkeys(("Milliseconds", "Microseconds"), "int"),
    },
}
