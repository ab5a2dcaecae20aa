"""The two type systems that a mapping connects: declared field types and ClickHouse column types.

Field types are GlassFlow's (`int`, `float64`, `string` ...), normalised to kinds as GlassFlow does: the width of a
number does not restrict JSON values, only the column's type does. This project adds `decimal` and integers of 128 and
256 bits, for numbers that no 64-bit type holds, and `any`, for values whose type depends on the record.

Column types are ClickHouse's, parsed into a tree, so that code can query `LowCardinality(Nullable(String))` instead of
matching text. ClickHouse's aliases of a type (`BIGINT`, `datetime64(3)`) are read as the type that the server makes of
them (type_aliases.py). Some are names for other types (`Point`, `Nested`, `SimpleAggregateFunction`): their values
are written as those of the other type (`written_as`). CONTRIBUTING.md lists the other files that a new column type
touches.
"""

import re
from dataclasses import dataclass
from typing import Literal

from glassflow_dagster.definition.model.type_aliases import ALIASES, MAX_WORDS
from glassflow_dagster.definition.problems import suggestion

FieldKind = Literal["string", "int", "uint", "float", "bool", "array", "map", "decimal", "bigint", "ubigint", "any"]

# Kind of 64-bit integer -> its least and greatest value.
INTEGER_LIMITS: dict[FieldKind, tuple[int, int]] = {"int": (-(2**63), 2**63 - 1), "uint": (0, 2**64 - 1)}

# Declared type -> kind, as GlassFlow normalises it.
FIELD_KINDS: dict[str, FieldKind] = {
    **dict.fromkeys(("string", "bytes"), "string"),
    **dict.fromkeys(("int", "integer", "int8", "int16", "int32", "int64"), "int"),
    **dict.fromkeys(("uint", "uint8", "uint16", "uint32", "uint64"), "uint"),
    **dict.fromkeys(("float", "float32", "float64", "number"), "float"),
    **dict.fromkeys(("bool", "boolean"), "bool"),
    "array": "array",
    **dict.fromkeys(("map", "object"), "map"),
    "decimal": "decimal",
    **dict.fromkeys(("int128", "int256"), "bigint"),
    **dict.fromkeys(("uint128", "uint256"), "ubigint"),
    "any": "any",
    # GlassFlow accepts unknown words; its examples have `datetime`. In JSON such values are texts.
    **dict.fromkeys(("text", "uuid", "date", "datetime", "timestamp"), "string"),
}

_INTEGERS = tuple(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_BIG_INTEGERS = ("Int128", "Int256", "UInt128", "UInt256")
_INTEGER_KINDS: tuple[FieldKind, ...] = ("int", "uint", "bigint", "ubigint")
# Decimal32(S) is Decimal(9, S), and so on: the type -> its precision.
_DECIMAL_PRECISIONS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_MAX_DIGITS = 76
# ClickHouse's defaults: Decimal is Decimal(10, 0), and DateTime64 is DateTime64(3).
_DEFAULT_PRECISION = 10
_DEFAULT_SECOND_DIGITS = 3

# Column type -> the kinds of field that it takes, as in GlassFlow's conversion matrix. This project adds integers in
# float columns (if they hold it exactly, which the mapping checks), and the types that GlassFlow rejects.
_KINDS_TAKEN: dict[str, tuple[FieldKind, ...]] = {
    "Bool": ("bool",),
    **dict.fromkeys(_INTEGERS, _INTEGER_KINDS),
    **dict.fromkeys(_BIG_INTEGERS, (*_INTEGER_KINDS, "string")),
    **dict.fromkeys(("Float32", "Float64"), ("float", "int", "uint")),
    **dict.fromkeys(("Decimal", *_DECIMAL_PRECISIONS), ("decimal", "float", *_INTEGER_KINDS, "string")),
    "String": ("string", "array", "map"),
    **dict.fromkeys(("FixedString", "UUID", "Enum8", "Enum16", "IPv4", "IPv6"), ("string",)),
    **dict.fromkeys(("DateTime", "DateTime64"), ("string", "int", "uint", "float", "decimal")),
    **dict.fromkeys(("Date", "Date32"), ("string",)),
    "Array": ("array",),
    "Map": ("map",),
    "Tuple": ("array", "map"),
    "JSON": ("map", "string"),
}

# Column type -> kinds of field that it does not take, and the expression that makes it a value of them.
_CONVERSIONS: dict[str, tuple[tuple[tuple[FieldKind, ...], str], ...]] = {
    "Bool": ((("int", "uint"), "{0} == 1"),),
    **dict.fromkeys((*_INTEGERS, *_BIG_INTEGERS), ((("bool",), "{0} ? 1 : 0"),)),
    **dict.fromkeys(
        ("Date", "Date32"),
        (
            (("int", "uint"), "toDate({0}) of seconds or fromUnixDay({0}) of days since 1970"),
            (("float",), "toDate({0})"),
        ),
    ),
    "String": ((("int", "uint", "bool"), "toString({0})"),),
}

_WRAPPERS = ("Nullable", "LowCardinality")
# Types in whose arguments a name may precede a type; elsewhere two words are a type, such as DOUBLE PRECISION.
_WITH_NAMES = ("Tuple", "Nested", "JSON")
# Geometric shapes -> the types that they are. https://clickhouse.com/docs/sql-reference/data-types/geo
_SHAPES = {
    "Point": "Tuple(Float64, Float64)",
    **dict.fromkeys(("Ring", "LineString", "MultiPoint"), "Array(Point)"),
    "MultiLineString": "Array(LineString)",
    "Polygon": "Array(Ring)",
    "MultiPolygon": "Array(Polygon)",
}
# Types of ClickHouse that a table may have and no field can fill, and the beginning of the names of intervals.
NEVER_FILLED = (
    "AggregateFunction", "BFloat16", "Dynamic", "Geometry", "Nothing", "Object", "QBit", "Time", "Time64", "Variant",
)  # fmt: skip
_INTERVAL = "Interval"
# The remedy where a column of a table cannot be filled.
LEAVE_OUT = "leave the column out of the mapping, and every row gets its default"
# Types with parameters that are no types of elements.
_WITH_OPTIONS = ("JSON", "Dynamic")
# The types of columns that a field can fill.
COLUMN_TYPES = (*_KINDS_TAKEN, *_SHAPES, "Nested", "SimpleAggregateFunction")
# Types that cannot be a map's key, because ClickHouse must parse the key from the name in a JSON object.
_NOT_MAP_KEYS = ("Array", "Map", "Tuple", "JSON")
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<quoted>`(?:[^`\\]|\\.|``)*`)|(?P<sign>[(),=]))"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*\Z")


@dataclass(frozen=True)
class Named:
    """A named element of a Tuple, or a typed path of a JSON column."""

    name: str
    type: "ColumnType"

    def __str__(self) -> str:
        """Return the element in ClickHouse's syntax."""
        # A name with other characters stands in backticks, with backslashes before its own.
        name = self.name if _PLAIN_NAME.match(self.name) else "`" + re.sub(r"([\\`])", r"\\\1", self.name) + "`"
        return f"{name} {self.type}"


@dataclass(frozen=True)
class Option:
    """A parameter that is no type, whole number or text: `max_dynamic_paths=10`, `SKIP a.b`, `0.5` of a function."""

    text: str

    def __str__(self) -> str:
        """Return the parameter as it was written."""
        return self.text


@dataclass(frozen=True)
class ColumnType:
    """A ClickHouse type: its name and arguments (types, numbers, texts, `name = number` pairs, named types)."""

    name: str
    arguments: "tuple[Argument, ...]" = ()

    @property
    def nullable(self) -> bool:
        """True when the column may hold NULL."""
        return self.name == "Nullable" or (self.name == "LowCardinality" and self._inner.nullable)

    @property
    def base(self) -> "ColumnType":
        """The type without `Nullable` and `LowCardinality`, which change storage and not values."""
        return self._inner.base if self.name in _WRAPPERS else self

    @property
    def inner(self) -> "tuple[ColumnType, ...]":
        """The types of an Array's, Map's or Tuple's elements, in order; of a JSON column's typed paths."""
        types = (a.type if isinstance(a, Named) else a for a in self.arguments)
        return tuple(t for t in types if isinstance(t, ColumnType))

    @property
    def element_names(self) -> tuple[str, ...]:
        """The names of a Tuple's elements or of a JSON column's typed paths; empty when they have none."""
        return tuple(a.name for a in self.arguments if isinstance(a, Named))

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of an Enum's values."""
        return tuple(a[0] for a in self.arguments if isinstance(a, tuple))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers among the arguments: a length, precision and scale, digits after the second."""
        return tuple(a for a in self.arguments if isinstance(a, int))

    @property
    def _inner(self) -> "ColumnType":
        """The type inside `Nullable` or `LowCardinality`."""
        inner = self.arguments[0]
        assert isinstance(inner, ColumnType)
        return inner

    def __str__(self) -> str:
        """Return the type in ClickHouse's syntax."""
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(_write_argument(a) for a in self.arguments)})"


Argument = ColumnType | Named | Option | int | str | tuple[str, int]


def parse_column_type(text: str) -> ColumnType:
    """Parse a ClickHouse type; raises ValueError for any other text."""
    tokens = _tokens(text)
    parsed, remaining = _parse_type(text, tokens)
    if remaining:
        raise ValueError(f"{text!r} is not a ClickHouse type: unexpected {remaining[0]!r}")
    return parsed


def with_usual_case(text: str) -> str:
    """Return a type with ClickHouse's case: `uuid` -> `UUID`. GlassFlow's oldest definitions write lower case."""
    # Lower-case name of a type -> its usual spelling.
    usual = {name.lower(): name for name in (*_KINDS_TAKEN, *_WRAPPERS)}

    def cased(match: re.Match[str]) -> str:
        # A word before another word is the name of a Tuple's element: unchanged.
        is_element_name = re.compile(r"\s+[\w`]").match(text, match.end())
        return match[0] if is_element_name else usual.get(match[0], match[0])

    # Quoted texts and names are matched as a whole, so that the words in them stay unchanged.
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|\w+", cased, text)


def written_as(column: ColumnType) -> ColumnType:
    """Return the type as which values of a type are written: the same, but for names of other types at any depth.

    SimpleAggregateFunction(f, T) is T, Nested(a T, ...) is Array(Tuple(a T, ...)), and a shape such as Point is its
    tuples and arrays. Names with wrong arguments stay, as do the typed paths of JSON, which is sent as text.
    """
    if column.name == "JSON":
        return column
    column = ColumnType(column.name, tuple(_written_argument(argument) for argument in column.arguments))
    match column.name, column.arguments:
        case "SimpleAggregateFunction", (ColumnType(), ColumnType() as values):
            return values
        case "Nested", (Named(), *_) if len(column.element_names) == len(column.arguments):
            return ColumnType("Array", (ColumnType("Tuple", column.arguments),))
        case name, () if name in _SHAPES:
            return written_as(parse_column_type(_SHAPES[name]))
    return column


def _written_argument(argument: Argument) -> Argument:
    """Return an argument of a type with `written_as` for the type in it, if there is one."""
    if isinstance(argument, Named):
        return Named(argument.name, written_as(argument.type))
    return written_as(argument) if isinstance(argument, ColumnType) else argument


def parse_written_type(text: str) -> ColumnType:
    """Parse a ClickHouse type as the one as which its values are written; raises ValueError for any other text."""
    return written_as(parse_column_type(text))


def unsupported_reason(column: ColumnType) -> str | None:
    """Return why columns of this type cannot be written, and what to do; None when they can.

    Arguments that a definition may leave to the table (an Enum's values, a FixedString's length) may be missing.
    """
    base = written_as(column).base
    if base.name in NEVER_FILLED or base.name.startswith(_INTERVAL):
        return f"values of type {base} cannot be written; {LEAVE_OUT}"
    if base.name not in _KINDS_TAKEN:
        return _unknown_reason(base)
    problem = _argument_problem(base)
    if problem:
        return problem
    if base.name == "JSON":
        return None  # the server checks its typed paths
    if base.name == "Map" and (base.inner[0].base.name in _NOT_MAP_KEYS or base.inner[0].nullable):
        return (
            f"{base} cannot be filled from an object, whose keys are strings; use a key type such as String or UInt64, "
            f"or {LEAVE_OUT}"
        )
    return next((reason for inner in base.inner if (reason := unsupported_reason(inner))), None)


def _unknown_reason(base: ColumnType) -> str:
    """Return why a name is no type of a column, and what to write."""
    if base.name == "SimpleAggregateFunction":
        return f"{base} needs a function and its type, as in SimpleAggregateFunction(sum, UInt64)"
    if base.name == "Nested":
        return f"{base} needs names and types of its elements, as in Nested(a String, b Int64)"
    if base.name in _SHAPES:
        return f"{base} is not a ClickHouse type; write {base.name}"
    return f"unsupported ClickHouse column type {str(base)!r}; {suggestion(base.name, [*COLUMN_TYPES, *_WRAPPERS])}"


def incomplete_reason(column: ColumnType) -> str | None:
    """Return why a table cannot be created with this type, because arguments are missing; None when it can."""
    base = column.base
    if base.name in ("Enum8", "Enum16") and not base.arguments:
        return f"{base} needs its values in a new table, as in {base}('a' = 1, 'b' = 2)"
    if base.name == "FixedString" and not base.arguments:
        return "FixedString needs its length in a new table, as in FixedString(16)"
    return next((reason for inner in base.inner if (reason := incomplete_reason(inner))), None)


def kinds_taken(column: ColumnType) -> tuple[FieldKind, ...]:
    """Return the kinds of field that a column of a supported type takes."""
    base = column.base
    return ("array",) if base.name == "Tuple" and not base.element_names else _KINDS_TAKEN[base.name]


def takes(column: ColumnType, kind: FieldKind) -> bool:
    """Return whether a column of a supported type takes fields of a kind; for `any` each record decides."""
    return kind == "any" or kind in kinds_taken(column)


def conversion(column: ColumnType, kind: FieldKind, name: str) -> str | None:
    """Return an expression with which a field of a kind fills a column of a type that does not take it.

    None where the field's name cannot stand in one, or no expression keeps every value.
    """
    template = next((text for kinds, text in _CONVERSIONS.get(column.base.name, ()) if kind in kinds), None)
    return template.format(name) if template and _PLAIN_NAME.match(name) else None


def declared_as(kind: FieldKind) -> str:
    """Return a type with which a definition can declare a field of this kind."""
    return {"bigint": "int128", "ubigint": "uint128"}.get(kind, kind)


def decimal_digits(column: ColumnType) -> tuple[int, int]:
    """Return precision and scale of a Decimal type in any spelling: `Decimal(P, S)`, `Decimal32(S)` ..."""
    numbers = column.numbers  # scale of Decimal32(S) and the like; precision and scale of Decimal(P, S)
    if column.name in _DECIMAL_PRECISIONS:
        return _DECIMAL_PRECISIONS[column.name], numbers[0]
    return (numbers[0] if numbers else _DEFAULT_PRECISION, numbers[1] if len(numbers) > 1 else 0)


def second_digits(column: ColumnType) -> int:
    """Return the number of digits after the second of a DateTime or DateTime64."""
    if column.name == "DateTime":
        return 0
    return column.numbers[0] if column.numbers else _DEFAULT_SECOND_DIGITS


def same_values(declared: ColumnType, actual: ColumnType) -> bool:
    """Return whether a declared type has the same values as the column's actual type.

    `Nullable` and `LowCardinality` are ignored at every depth: GlassFlow's definitions name the inner type. Where the
    definition omits an Enum's values, a FixedString's length, a time zone, the names of a Tuple's elements or JSON's
    parameters, those of the table count.
    """
    left, right = declared.base, actual.base
    if left.name.startswith("Decimal") and right.name.startswith("Decimal"):
        return decimal_digits(left) == decimal_digits(right)
    if left.name != right.name:
        return False
    if left.name in ("DateTime", "DateTime64"):
        return _same_times(left, right)
    if left.name in ("Array", "Map", "Tuple"):
        same_names = not left.element_names or left.element_names == right.element_names
        pairs = zip(left.inner, right.inner, strict=False)
        return same_names and len(left.inner) == len(right.inner) and all(same_values(a, b) for a, b in pairs)
    if left.name in ("JSON", "Enum8", "Enum16"):
        return _same_members(left, right)
    return not left.arguments or left.arguments == right.arguments


def _same_members(declared: ColumnType, actual: ColumnType) -> bool:
    """Return whether two Enums have the same values, or two JSON types the same parameters, in any order.

    A declared type without arguments fits all. A declared Enum value without a number ('a' in place of 'a' = 1) fits
    the value of that name, as the server numbers it.
    """
    if not declared.arguments:
        return True
    fitting = {*actual.arguments, *actual.value_names}
    return len(declared.arguments) == len(actual.arguments) and fitting.issuperset(declared.arguments)


def _same_times(declared: ColumnType, actual: ColumnType) -> bool:
    """Compare digits and time zone of two DateTime types, as far as the declared type has them."""
    # A list of the time zone, empty without one: it is the only argument that is a text.
    declared_zone, actual_zone = ([a for a in t.arguments if isinstance(a, str)] for t in (declared, actual))
    same_digits = not declared.arguments or second_digits(declared) == second_digits(actual)
    return same_digits and (not declared_zone or declared_zone == actual_zone)


def _argument_problem(base: ColumnType) -> str | None:
    """Return what is wrong with the arguments of a type without wrapper; None when they are valid."""
    numbers = base.numbers
    match base.name:
        case "FixedString":
            if base.arguments and (len(base.arguments) != 1 or not numbers or numbers[0] < 1):
                return "FixedString needs its length in bytes, as in FixedString(16)"
        case "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256":
            max_scale = _DECIMAL_PRECISIONS[base.name]
            if len(numbers) != 1 or len(base.arguments) != 1 or not 0 <= numbers[0] <= max_scale:
                return f"{base.name} needs its scale, 0 to {max_scale}, as in {base.name}(2)"
        case "Decimal":
            precision, scale = decimal_digits(base)
            if len(numbers) != len(base.arguments) or len(numbers) > 2:
                return "Decimal takes a precision and a scale, as in Decimal(18, 2)"
            if not (1 <= precision <= _MAX_DIGITS and 0 <= scale <= precision):
                return f"{base} has more digits than ClickHouse holds; use at most Decimal(76, 76)"
        case "DateTime64":
            if not 0 <= second_digits(base) <= 9:
                return f"{base} needs a precision of 0 to 9, as in DateTime64(3)"
        case "Array":
            if len(base.inner) != 1 or len(base.arguments) != 1:
                return "Array needs the type of its elements, as in Array(String)"
        case "Map":
            if len(base.inner) != 2 or len(base.arguments) != 2:
                return "Map needs the types of keys and values, as in Map(String, String)"
        case "Tuple":
            names = base.element_names
            if not base.inner or len(base.inner) != len(base.arguments) or len(set(names)) != len(names):
                return "Tuple needs the types of its elements, as in Tuple(String, Int64) or Tuple(a String, b Int64)"
            if names and len(names) != len(base.inner):
                return f"{base} names some elements and others not; name all or none"
        case name if base.arguments and name not in ("DateTime", "Enum8", "Enum16", "JSON"):
            return f"{base} is not a ClickHouse type; write {name}"
    return None


def _write_argument(argument: Argument) -> str:
    """Return an argument in ClickHouse's syntax; a tuple is an Enum's value with its number: `'a' = 1`."""
    if isinstance(argument, tuple):
        return f"{_quote(argument[0])} = {argument[1]}"
    return _quote(argument) if isinstance(argument, str) else str(argument)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unquote(token: str) -> str:
    """Return the content of a quoted text or name; a quote in it is doubled or follows a backslash."""
    quote = token[0]
    return re.sub(rf"\\(.)|{quote}{quote}", lambda m: m[1] or quote, token[1:-1])


def _tokens(text: str) -> list[str]:
    """Split a type into names, numbers, quoted texts and signs; raises ValueError."""
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if not match:
            raise ValueError(f"{text!r} is not a ClickHouse type: unexpected {stripped[position:]!r}")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


def _parse_type(text: str, tokens: list[str]) -> tuple[ColumnType, list[str]]:
    """Parse a type at the beginning of the tokens; return it and the remaining tokens. text: for error messages."""
    if not tokens or not tokens[0][0].isalpha():
        raise ValueError(f"{text!r} is not a ClickHouse type: a type's name is missing")
    name, remaining = _parse_name(tokens)
    if not remaining or remaining[0] != "(":
        if name in _WRAPPERS:
            raise ValueError(f"{text!r} is not a ClickHouse type: {name} needs a type, as in {name}(String)")
        return _usual(name, ()), remaining
    arguments: list[Argument] = []
    while remaining and remaining[0] in ("(", ","):
        option = _option(remaining[1:]) if name in _WITH_OPTIONS else None
        argument, remaining = option or _parse_argument(text, remaining[1:], named=_called(name) in _WITH_NAMES)
        arguments.append(argument)
    if not remaining or remaining[0] != ")":
        raise ValueError(f"{text!r} is not a ClickHouse type: a closing parenthesis is missing")
    if name in _WRAPPERS and not (len(arguments) == 1 and isinstance(arguments[0], ColumnType)):
        raise ValueError(f"{text!r} is not a ClickHouse type: {name} takes one type")
    remaining = remaining[1:]
    # As in INT(11) UNSIGNED.
    if remaining and (signed := f"{name} {remaining[0]}").lower() in ALIASES:
        name, remaining = signed, remaining[1:]
    return _usual(name, tuple(arguments)), remaining


def _parse_name(tokens: list[str]) -> tuple[str, list[str]]:
    """Parse a type's name, of several words where they are an alias; return it and the remaining tokens."""
    for count in range(MAX_WORDS, 1, -1):
        words = " ".join(tokens[:count])
        if words.lower() in ALIASES:
            return words, tokens[count:]
    return tokens[0], tokens[1:]


def _called(name: str) -> str:
    """Return ClickHouse's own name for a name of a type."""
    return ALIASES.get(name.lower(), name)


def _usual(alias: str, arguments: tuple[Argument, ...]) -> ColumnType:
    """Return a type of any name as ClickHouse stores it.

    A length as in VARCHAR(10) or INT(11) has no effect, DateTime(3) is DateTime64(3), and the values of an Enum decide
    whether it is an Enum8 or Enum16.
    """
    name = _called(alias)
    if name in ("String", *_INTEGERS, "Float32", "Float64"):
        return ColumnType(name)
    if name == "DateTime" and arguments and isinstance(arguments[0], int) and alias.lower() != "datetime32":
        return ColumnType("DateTime64", arguments) if arguments[0] else ColumnType(name, arguments[1:])
    if name == "Enum" and arguments:
        numbers = [argument[1] for argument in arguments if isinstance(argument, tuple)]
        return ColumnType("Enum8" if all(-128 <= number < 128 for number in numbers) else "Enum16", arguments)
    return ColumnType(name, arguments)


def _option(tokens: list[str]) -> tuple[Argument, list[str]] | None:
    """Parse `name=number`, `SKIP path` or `SKIP REGEXP 'text'` of JSON or Dynamic; return it and the remaining tokens.

    None for a typed path.
    """
    if len(tokens) > 2 and tokens[1] == "=":
        return Option(f"{tokens[0]}={tokens[2]}"), tokens[3:]
    if len(tokens) > 1 and tokens[0].upper() == "SKIP":
        # REGEXP before another argument, or at the end, is itself the path to skip.
        length = 3 if tokens[1].upper() == "REGEXP" and tokens[2:3] not in ([","], [")"]) else 2
        return Option(" ".join(tokens[:length])), tokens[length:]
    return None


def _parse_argument(text: str, tokens: list[str], *, named: bool) -> tuple[Argument, list[str]]:
    """Parse one argument of a type; return it and the remaining tokens. named: whether a name precedes an alias."""
    if not tokens:
        raise ValueError(f"{text!r} is not a ClickHouse type: it ends too early")
    token = tokens[0]
    if token[0] == "'":
        # An Enum's value with its number, or any other text.
        if tokens[1:2] == ["="] and len(tokens) > 2:
            return (_unquote(token), int(tokens[2])), tokens[3:]
        return _unquote(token), tokens[1:]
    if token.lstrip("-").isdigit():
        return int(token), tokens[1:]
    if token[0] in "-0123456789":
        return Option(token), tokens[1:]
    # Two names in a row: a named element and its type.
    is_alias = not named and " " in _parse_name(tokens)[0]
    if not is_alias and _is_name(token) and tokens[1:] and _is_name(tokens[1]):
        element, remaining = _parse_type(text, tokens[1:])
        return Named(_unquote(token) if token[0] == "`" else token, element), remaining
    return _parse_type(text, tokens)


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_`"
