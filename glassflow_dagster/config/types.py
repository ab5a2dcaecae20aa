"""The two type systems that a mapping connects: declared field types, and ClickHouse column types.

Field types are GlassFlow's (`int`, `float64`, `string` ...), normalised as it does: the width of a number says
nothing about what JSON may carry, only the column's type does. Column types are ClickHouse's own, parsed into a
tree, so that `LowCardinality(Nullable(String))` is asked what it is instead of being matched as text.
"""

import re
from dataclasses import dataclass
from typing import Literal

FieldKind = Literal["string", "int", "uint", "float", "bool", "array", "map"]

# GlassFlow's normalisation of declared types; the same words are accepted here.
FIELD_KINDS: dict[str, FieldKind] = {
    **dict.fromkeys(("string", "bytes"), "string"),
    **dict.fromkeys(("int", "integer", "int8", "int16", "int32", "int64"), "int"),
    **dict.fromkeys(("uint", "uint8", "uint16", "uint32", "uint64"), "uint"),
    **dict.fromkeys(("float", "float32", "float64", "number"), "float"),
    **dict.fromkeys(("bool", "boolean"), "bool"),
    "array": "array",
    **dict.fromkeys(("map", "object"), "map"),
}

INTEGER_BITS = {f"{sign}Int{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}

# Column type -> the kinds of field whose values it takes. Documented in glassflow's conversion matrix; an int into
# a float column is ours: it loses nothing within 2^53, which the mapping checks.
_TAKES: dict[str, tuple[FieldKind, ...]] = {
    "Bool": ("bool",),
    **dict.fromkeys(INTEGER_BITS, ("int", "uint")),
    **dict.fromkeys(("Float32", "Float64"), ("float", "int", "uint")),
    "String": ("string", "array", "map"),
    **dict.fromkeys(("FixedString", "UUID", "Enum8", "Enum16"), ("string",)),
    **dict.fromkeys(("DateTime", "DateTime64"), ("string", "int", "uint", "float")),
    **dict.fromkeys(("Date", "Date32"), ("string",)),
}

_WRAPPERS = ("Nullable", "LowCardinality")
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>-?\d+)|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<sign>[(),=]))"
)


@dataclass(frozen=True)
class ColumnType:
    """A ClickHouse type: its name and arguments (types, numbers, texts or `name = number` pairs)."""

    name: str
    arguments: "tuple[ColumnType | int | str | tuple[str, int], ...]" = ()

    @property
    def nullable(self) -> bool:
        """Whether NULL may stand in the column."""
        return self.name == "Nullable" or (self.name == "LowCardinality" and self._inner.nullable)

    @property
    def base(self) -> "ColumnType":
        """The type below `Nullable` and `LowCardinality`, which change storage and not values."""
        return self._inner.base if self.name in _WRAPPERS else self

    @property
    def _inner(self) -> "ColumnType":
        inner = self.arguments[0]
        assert isinstance(inner, ColumnType)  # noqa: S101 - parse_column_type made sure of it
        return inner

    def __str__(self) -> str:
        """Write the type as ClickHouse does."""
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(_write_argument(a) for a in self.arguments)})"


def parse_column_type(text: str) -> ColumnType:
    """Read a ClickHouse type; raises ValueError when the text is not one."""
    tokens = _tokens(text)
    parsed, rest = _parse_type(text, tokens)
    if rest:
        raise ValueError(f"{text!r} is not a ClickHouse type: unexpected {rest[0]!r}")
    return parsed


def with_usual_case(text: str) -> str:
    """Give the types named in a text their usual case: GlassFlow's oldest definitions write `uuid` and `datetime`."""
    usual = {name.lower(): name for name in (*_TAKES, *_WRAPPERS)}
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|\w+", lambda match: usual.get(match[0], match[0]), text)


def unsupported_reason(column: ColumnType) -> str | None:
    """Say why no column of this type can be written, or None when it can."""
    base = column.base
    if base.name not in _TAKES:
        return f"unsupported ClickHouse column type {str(column)!r}; use one of {', '.join(_TAKES)}"
    if base.name == "FixedString" and (len(base.arguments) != 1 or not isinstance(base.arguments[0], int)):
        return "FixedString needs its length in bytes, as in FixedString(16)"
    return None


def kinds_taken(column: ColumnType) -> tuple[FieldKind, ...]:
    """Give the kinds of field whose values a (supported) column takes."""
    return _TAKES[column.base.name]


def integer_range(name: str) -> tuple[int, int]:
    """Give the least and the greatest value of a ClickHouse integer type such as `UInt16`."""
    bits = INTEGER_BITS[name]
    return (0, 2**bits - 1) if name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def same_values(declared: ColumnType, actual: ColumnType) -> bool:
    """Whether a declared type means the column's actual one.

    `Nullable` and `LowCardinality` are the table's affair: GlassFlow's definitions name the inner type. So are the
    arguments of Enum, DateTime and DateTime64, where the definition leaves them out.
    """
    left, right = declared.base, actual.base
    return left.name == right.name and (not left.arguments or left.arguments == right.arguments)


def _write_argument(argument: "ColumnType | int | str | tuple[str, int]") -> str:
    if isinstance(argument, tuple):
        return f"{_quote(argument[0])} = {argument[1]}"
    return _quote(argument) if isinstance(argument, str) else str(argument)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unquote(token: str) -> str:
    return re.sub(r"\\(.)|''", lambda m: m[1] or "'", token[1:-1])


def _tokens(text: str) -> list[str]:
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
    if not tokens or not tokens[0][0].isalpha():
        raise ValueError(f"{text!r} is not a ClickHouse type: a type's name is missing")
    name, rest = tokens[0], tokens[1:]
    if not rest or rest[0] != "(":
        if name in _WRAPPERS:
            raise ValueError(f"{text!r} is not a ClickHouse type: {name} needs a type, as in {name}(String)")
        return ColumnType(name), rest
    arguments = []
    while rest and rest[0] in ("(", ","):
        argument, rest = _parse_argument(text, rest[1:])
        arguments.append(argument)
    if not rest or rest[0] != ")":
        raise ValueError(f"{text!r} is not a ClickHouse type: a closing parenthesis is missing")
    if name in _WRAPPERS and not (len(arguments) == 1 and isinstance(arguments[0], ColumnType)):
        raise ValueError(f"{text!r} is not a ClickHouse type: {name} takes one type")
    return ColumnType(name, tuple(arguments)), rest[1:]


def _parse_argument(text: str, tokens: list[str]) -> "tuple[ColumnType | int | str | tuple[str, int], list[str]]":
    if not tokens:
        raise ValueError(f"{text!r} is not a ClickHouse type: it ends too early")
    first = tokens[0]
    if first[0] == "'":
        if tokens[1:2] == ["="] and len(tokens) > 2:  # noqa: PLR2004 - 'name' = number
            return (_unquote(first), int(tokens[2])), tokens[3:]
        return _unquote(first), tokens[1:]
    if first.lstrip("-").isdigit():
        return int(first), tokens[1:]
    return _parse_type(text, tokens)
