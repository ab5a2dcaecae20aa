"""Whether an expression makes sense for the declared fields, and what kind of value it gives.

Names become fields here: a dotted name is the longest declared one that it begins with, and what follows is looked
up inside that field. Everything that can be known without a record is refused here, with the place in the text;
what only a record can tell (nil, the kind of a value inside an undeclared object) is left to the compiled columns.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from glassflow_dagster.expressions.language.errors import ExpressionError
from glassflow_dagster.expressions.language.parse import parse
from glassflow_dagster.expressions.language.patterns import java_pattern
from glassflow_dagster.expressions.language.signatures import (
    FILTER_FUNCTIONS,
    PARAMETER_KINDS,
    TIME_METHODS,
    TRANSFORM_FUNCTIONS,
    Kind,
    Signature,
)
from glassflow_dagster.expressions.language.syntax import (
    Binary,
    Call,
    Field,
    Index,
    ListLiteral,
    Literal,
    Member,
    Method,
    Name,
    Node,
    Span,
    Ternary,
    Unary,
)

INTEGERS: frozenset[Kind] = frozenset({"int", "uint"})
NUMBERS: frozenset[Kind] = INTEGERS | {"float"}
# Fields whose digits no number here holds.
DIGITS: frozenset[Kind] = frozenset({"decimal", "bigint", "ubigint"})
_TEXTS: frozenset[Kind] = frozenset({"string", "any"})
_TRUTHS: frozenset[Kind] = frozenset({"bool", "any"})
# What can be asked whether it is the same as another of its kind.
_COMPARABLE: frozenset[Kind] = frozenset({"string", "bool", "time", "strings"})

_ORDER = ("<", "<=", ">", ">=")
_TEXT_TESTS = ("contains", "startsWith", "endsWith")


@dataclass(frozen=True)
class Checked:
    """An expression that is right for its fields: its tree with names resolved, and the kind of every node."""

    text: str
    root: Node
    kinds: Mapping[Node, Kind]
    functions: Mapping[str, Signature]

    @property
    def kind(self) -> Kind:
        """The kind of value that the expression gives."""
        return self.kinds[self.root]


def check_filter(text: str, fields: Mapping[str, Kind]) -> Checked:
    """Check an expression that says whether a record is meant; raises ExpressionError.

    fields: the kind of each declared field by its (dotted) name.
    """
    checked = _check(text, fields, FILTER_FUNCTIONS)
    if checked.kind not in _TRUTHS:
        raise ExpressionError(text, checked.root.span, f"a filter needs true or false, and this is {_a(checked.kind)}")
    return checked


def check_transform(text: str, fields: Mapping[str, Kind]) -> Checked:
    """Check an expression that gives a value; raises ExpressionError. fields: as for check_filter."""
    return _check(text, fields, TRANSFORM_FUNCTIONS)


def joined_kind(left: Kind, right: Kind) -> Kind | None:
    """Give the kind of a value that is either of two, or None where there is none."""
    if right in (left, "nil"):
        return left
    if left == "nil":
        return right
    if left in NUMBERS and right in NUMBERS:
        return "int" if left in INTEGERS and right in INTEGERS else "float"
    return None if {left, right} & ({"time"} | DIGITS) else "any"


def _check(text: str, fields: Mapping[str, Kind], functions: Mapping[str, Signature]) -> Checked:
    checker = _Checker(text, fields, functions)
    root = checker.resolve(parse(text))
    checker.kind(root)
    return Checked(text, root, checker.kinds, functions)


def _a(kind: Kind) -> str:
    words: dict[Kind, str] = {
        "string": "a text",
        "int": "an integer",
        "uint": "an integer",
        "float": "a float",
        "bool": "true or false",
        "array": "an array",
        "map": "an object",
        "decimal": "a number of many digits (say toFloat(..) or toString(..))",
        "bigint": "an integer of many digits (say toFloat(..) or toString(..))",
        "ubigint": "an integer of many digits (say toFloat(..) or toString(..))",
        "any": "a value of unknown type",
        "strings": "a list of texts",
        "time": "a time",
        "nil": "nil",
    }
    return words[kind]


class _Checker:
    """Carries the text and the declarations through the tree, and collects the kinds."""

    def __init__(self, text: str, fields: Mapping[str, Kind], functions: Mapping[str, Signature]) -> None:
        self._text = text
        self._fields = fields
        self._functions = functions
        self.kinds: dict[Node, Kind] = {}

    def resolve(self, node: Node) -> Node:
        """Give the tree with fields in the place of names."""
        path = _path(node)
        if path is not None:
            if path in self._fields:
                return Field(path, node.span)
            if isinstance(node, Name) or not self._begins_with_field(path):
                raise self._unknown("field", path, tuple(self._fields), node.span)
        changes: dict[str, Any] = {
            part.name: self._resolved(getattr(node, part.name)) for part in dataclasses.fields(node)
        }
        return dataclasses.replace(node, **changes)

    def _resolved(self, part: Any) -> Any:
        """Resolve what may be a node, several, or something else that a node carries."""
        if isinstance(part, tuple):
            return tuple(self._resolved(one) for one in part)
        return self.resolve(part) if isinstance(part, Node) else part

    def kind(self, node: Node) -> Kind:
        """Give the kind of a node, checking all that lies below it."""
        found = self._kind(node)
        self.kinds[node] = found
        return found

    def _kind(self, node: Node) -> Kind:  # noqa: C901, PLR0911 - one case a kind of node
        match node:
            case Literal(value=value):
                return _literal_kind(value)
            case Field(name=name):
                return self._fields[name]
            case ListLiteral():
                return self._list(node)
            case Member():
                return self._member(node)
            case Index():
                return self._index(node)
            case Method():
                return self._method(node)
            case Unary():
                return self._unary(node)
            case Ternary(condition=condition, then=then, otherwise=otherwise):
                self._need(condition, _TRUTHS, "true or false")
                return self._joined(node, self.kind(then), self.kind(otherwise))
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)
            case Name(name=name):
                raise self._unknown("field", name, tuple(self._fields), node.span)

    def _list(self, node: ListLiteral) -> Kind:
        for item in node.items:
            if self.kind(item) != "string":
                raise self._error(item, "only texts can be listed here; other values on the right of `in`")
        return "strings"

    def _member(self, node: Member) -> Kind:
        base = self.kind(node.base)
        if base not in ("map", "any"):
            raise self._error(node, f"{self._source(node.base)} is {_a(base)} and has no field {node.name!r}")
        return "any"

    def _index(self, node: Index) -> Kind:
        base, index = self.kind(node.base), self.kind(node.index)
        wanted: dict[Kind, frozenset[Kind]] = {
            "array": INTEGERS,
            "strings": INTEGERS,
            "map": frozenset({"string"}),
            "any": INTEGERS | {"string"},
        }
        if base not in wanted:
            raise self._error(node.base, f"{_a(base)} has no elements")
        if index not in wanted[base]:
            raise self._error(node.index, f"{_a(index)} is no index of {_a(base)}; use an integer or a text")
        return "string" if base == "strings" else "any"

    def _method(self, node: Method) -> Kind:
        base = self.kind(node.base)
        if base != "time":
            raise self._error(node.base, f"{_a(base)} has no methods; only times have, as in date(field).Year()")
        if node.name not in TIME_METHODS:
            raise self._unknown("method", node.name, TIME_METHODS, node.span)
        return "int"

    def _unary(self, node: Unary) -> Kind:
        if node.operator == "not":
            self._need(node.operand, _TRUTHS, "true or false")
            return "bool"
        return "float" if self._need(node.operand, NUMBERS | {"any"}, "a number") in ("float", "any") else "int"

    def _binary(self, node: Binary) -> Kind:  # noqa: PLR0911 - one case a family of operators
        if node.operator in ("and", "or"):
            self._need(node.left, _TRUTHS, "true or false")
            self._need(node.right, _TRUTHS, "true or false")
            return "bool"
        if node.operator == "in":
            return self._in(node)
        left, right = self.kind(node.left), self.kind(node.right)
        if node.operator == "??":
            return self._joined(node, left, right)
        if node.operator in ("==", "!="):
            self._same(node, left, right)
            return "bool"
        if node.operator in _ORDER:
            self._ordered(node, left, right)
            return "bool"
        if node.operator in (*_TEXT_TESTS, "matches"):
            for side in (node.left, node.right):
                self._need(side, _TEXTS, "a text")
            if node.operator == "matches":
                self._pattern(node.right)
            return "bool"
        return self._arithmetic(node, left, right)

    def _in(self, node: Binary) -> Kind:
        needle = self.kind(node.left)
        if isinstance(node.right, ListLiteral):
            for item in node.right.items:
                self._same(Binary("==", node.left, item, item.span), needle, self.kind(item))
            return "bool"
        haystack = self.kind(node.right)
        if haystack not in ("array", "map", "strings"):
            raise self._error(node.right, f"`in` looks into a list, an array or an object, and this is {_a(haystack)}")
        if haystack != "array" and needle != "string":
            raise self._error(node.left, f"{_a(haystack)} is searched for a text, and this is {_a(needle)}")
        if needle in {"array", "map", "strings", "time"} | DIGITS:
            raise self._error(node.left, f"an array cannot be searched for {_a(needle)}")
        return "bool"

    def _same(self, node: Binary, left: Kind, right: Kind) -> None:
        alike = (left == right and left in _COMPARABLE) or (left in NUMBERS and right in NUMBERS)
        if alike or "nil" in (left, right):
            return
        if "any" in (left, right) and {left, right} <= NUMBERS | {"string", "bool", "any"}:
            return
        raise self._error(node, f"{_a(left)} and {_a(right)} are never the same; convert one of them")

    def _ordered(self, node: Binary, left: Kind, right: Kind) -> None:
        self._refuse_two_unknown(node, left, right)
        kinds = {left, right}
        if not (kinds <= NUMBERS | {"any"} or kinds <= _TEXTS or kinds == {"time"}):
            raise self._error(node, f"{_a(left)} and {_a(right)} have no order; compare numbers, texts or times")

    def _arithmetic(self, node: Binary, left: Kind, right: Kind) -> Kind:
        kinds = {left, right}
        if node.operator == "+":
            self._refuse_two_unknown(node, left, right)
            if "string" in kinds and kinds <= _TEXTS:
                return "string"
        allowed = INTEGERS if node.operator == "%" else NUMBERS | {"any"}
        if not kinds <= allowed:
            wanted = {"%": "integers", "+": "two numbers or two texts"}.get(node.operator, "numbers")
            raise self._error(node, f"`{node.operator}` needs {wanted}, and this is {_a(left)} and {_a(right)}")
        return "int" if kinds <= INTEGERS and node.operator not in ("/", "**") else "float"

    def _refuse_two_unknown(self, node: Binary, left: Kind, right: Kind) -> None:
        if left == right == "any":
            raise self._error(node, f"`{node.operator}` of two values of unknown type; say toFloat(..) or toString(..)")

    def _call(self, node: Call) -> Kind:
        signature = self._functions.get(node.function)
        if signature is None:
            raise self._unknown("function", node.function, tuple(self._functions), node.span)
        arguments = node.arguments
        if node.function == "waterfall" and len(arguments) == 1 and isinstance(arguments[0], ListLiteral):
            arguments = arguments[0].items
        least = len(signature.parameters)
        if len(arguments) < least or (len(arguments) > least and not signature.repeated):
            more = " or more" if signature.repeated else ""
            raise self._error(node, f"{node.function} takes {least}{more} argument(s), and here are {len(arguments)}")
        kinds = []
        for position, argument in enumerate(arguments):
            parameter = signature.parameters[min(position, least - 1)]
            kinds.append(self.kind(argument))
            if kinds[-1] not in PARAMETER_KINDS[parameter]:
                raise self._error(argument, f"{node.function} does not take {_a(kinds[-1])} here")
            if parameter == "literal" and not isinstance(argument, Literal):
                raise self._error(argument, f'{node.function} needs a literal text here, such as ","')
            if kinds[-1] == "nil" and not signature.tolerant:
                raise self._error(argument, f"{node.function} does not take nil")
        if signature.returns == "number":
            return "int" if set(kinds) <= INTEGERS else "float"
        return signature.returns

    def _joined(self, node: Node, left: Kind, right: Kind) -> Kind:
        found = joined_kind(left, right)
        if found is None:
            raise self._error(node, f"the value would be {_a(left)} or {_a(right)}; make them alike")
        return found

    def _need(self, node: Node, allowed: frozenset[Kind], wanted: str) -> Kind:
        found = self.kind(node)
        if found not in allowed:
            raise self._error(node, f"{wanted} is needed here, and this is {_a(found)}")
        return found

    def _pattern(self, node: Node) -> None:
        if not isinstance(node, Literal) or not isinstance(node.value, str):
            raise self._error(node, "the pattern of `matches` must be a literal text")
        try:
            java_pattern(node.value)
        except ValueError as error:
            raise self._error(node, f"not a pattern that is supported: {error}") from None

    def _begins_with_field(self, path: str) -> bool:
        parts = path.split(".")
        return any(".".join(parts[:length]) in self._fields for length in range(1, len(parts)))

    def _unknown(self, what: str, name: str, known: tuple[str, ...], span: Span) -> ExpressionError:
        close = get_close_matches(name, known, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"
        return ExpressionError(self._text, span, f"unknown {what} {name!r}; {remedy}")

    def _error(self, node: Node, problem: str) -> ExpressionError:
        return ExpressionError(self._text, node.span, problem)

    def _source(self, node: Node) -> str:
        return self._text[node.span.start : node.span.end]


def _path(node: Node) -> str | None:
    """Give `a.b.c` as one dotted name, or None for what is no chain of names."""
    match node:
        case Name(name=name):
            return name
        case Member(base=base, name=name):
            before = _path(base)
            return None if before is None else f"{before}.{name}"
        case _:
            return None


def _literal_kind(value: str | float | bool | None) -> Kind:
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "int" if isinstance(value, int) else "float"
