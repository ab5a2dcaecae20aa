"""Whether an expression makes sense for the declared fields, and what kind of value it gives.

Names become fields here: a dotted name is the longest declared one that it begins with, and what follows is looked
up inside that field. Everything that can be known without a record is refused here, with the place in the text;
what only a record can tell (nil, the kind of a value inside an undeclared object) is left to the compiled columns.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from glassflow_dagster.expressions.language.durations import microseconds
from glassflow_dagster.expressions.language.errors import ExpressionError
from glassflow_dagster.expressions.language.parse import parse
from glassflow_dagster.expressions.language.patterns import engine_pattern
from glassflow_dagster.expressions.language.signatures import (
    ELEMENTS,
    FILTER_FUNCTIONS,
    LISTS,
    METHODS,
    PARAMETER_KINDS,
    PREDICATES,
    TRANSFORM_FUNCTIONS,
    UNSUPPORTED,
    Kind,
    Signature,
)
from glassflow_dagster.expressions.language.syntax import (
    Binary,
    Call,
    Field,
    Index,
    Let,
    ListLiteral,
    Literal,
    MapLiteral,
    Member,
    Method,
    Name,
    Node,
    Pointer,
    Predicate,
    Slice,
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
_COMPARABLE: frozenset[Kind] = frozenset({"string", "bool", "time", "duration", "strings", "ints", "floats", "bools"})
# What no list and no object can hold, and no value can be instead.
_TIMES: frozenset[Kind] = frozenset({"time", "duration"})

_ORDER = ("<", "<=", ">", ">=")
_TEXT_TESTS = ("contains", "startsWith", "endsWith")

# Variables are put in where they are named, and a predicate's column is written twice: past these, Spark would plan
# for longer than the batch takes.
_MOST_NODES = 2000
_DEEPEST_TREE = 100
_DEEPEST_PREDICATE = 4


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
    checked = _check(text, fields, TRANSFORM_FUNCTIONS)
    if checked.kind == "duration":
        raise ExpressionError(text, checked.root.span, "a duration is no output; say which unit, as in (..).Seconds()")
    return checked


def undeclared_names(text: str, declared: Collection[str]) -> tuple[str, ...]:
    """Give the names, in order and each once, that an expression reads and that no declared one begins.

    Of `a.b` this is `a`: what follows is looked up inside it. Raises ExpressionError for what is no expression.
    """
    found: dict[str, None] = {}

    def look(node: Node, variables: frozenset[str]) -> None:
        path = _path(node)
        if path is not None:
            first = path.split(".")[0]
            if first not in variables and not any(name in declared for name in _beginnings(path)):
                found[first] = None
            return
        if isinstance(node, Let):
            look(node.value, variables)
            look(node.body, variables | {node.name})
            return
        for part in dataclasses.fields(node):
            value = getattr(node, part.name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Node):
                    look(one, variables)

    look(parse(text), frozenset())
    return tuple(found)


def list_kind(element: Kind) -> Kind:
    """Give the kind of a list of such elements."""
    return next((kind for kind, inner in LISTS.items() if inner == element), "values")


def joined_kind(left: Kind, right: Kind) -> Kind | None:
    """Give the kind of a value that is either of two, or None where there is none."""
    if right in (left, "nil"):
        return left
    if left == "nil":
        return right
    if left in NUMBERS and right in NUMBERS:
        return "int" if left in INTEGERS and right in INTEGERS else "float"
    return None if {left, right} & (_TIMES | DIGITS) else "any"


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
        "ints": "a list of integers",
        "floats": "a list of floats",
        "bools": "a list of truth values",
        "values": "a list",
        "time": "a time",
        "duration": "a duration",
        "nil": "nil",
    }
    return words[kind]


class _Checker:
    """Carries the text and the declarations through the tree, and collects the kinds."""

    def __init__(self, text: str, fields: Mapping[str, Kind], functions: Mapping[str, Signature]) -> None:
        self._text = text
        self._fields = fields
        self._functions = functions
        self._variables: dict[str, Node] = {}
        self._elements: list[Kind] = []
        self._sizes: dict[int, tuple[int, int]] = {}
        self.kinds: dict[Node, Kind] = {}

    def resolve(self, node: Node) -> Node:
        """Give the tree with fields, and the values of variables, in the place of names."""
        if isinstance(node, Let):
            return self._let(node)
        if isinstance(node, Name) and node.name in self._variables:
            return self._variables[node.name]
        path = _path(node)
        if path is not None and path.split(".")[0] not in self._variables:
            if path in self._fields:
                return Field(path, node.span)
            if isinstance(node, Name) or not self._begins_with_field(path):
                raise self._unknown("field", path, tuple(self._fields), node.span)
        changes: dict[str, Any] = {
            part.name: self._resolved(getattr(node, part.name)) for part in dataclasses.fields(node)
        }
        return dataclasses.replace(node, **changes)

    def _let(self, node: Let) -> Node:
        if self._begins_with_field(f"{node.name}.") or node.name in self._variables:
            raise self._error(node, f"{node.name!r} has a meaning already; give the variable another name")
        self._variables[node.name] = self.resolve(node.value)
        body = self.resolve(node.body)
        size, depth = self._measure(body)
        if size > _MOST_NODES or depth > _DEEPEST_TREE:
            raise self._error(node, "too long with the variables put in; split it into several outputs")
        return body

    def _measure(self, node: Node) -> tuple[int, int]:
        """Give the number of nodes and levels, without walking a variable's value twice."""
        if id(node) not in self._sizes:
            parts = [getattr(node, part.name) for part in dataclasses.fields(node)]
            nodes = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
            below = [self._measure(one) for one in nodes if isinstance(one, Node)]
            size = 1 + sum(size for size, _ in below)
            self._sizes[id(node)] = size, 1 + max((depth for _, depth in below), default=0)
        return self._sizes[id(node)]

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

    def _kind(self, node: Node) -> Kind:
        match node:
            case Literal(value=value):
                return _literal_kind(value)
            case Field(name=name):
                return self._fields[name]
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Pointer():
                return self._pointer(node)
            case Predicate():
                raise self._error(node, f"a predicate belongs into {', '.join(PREDICATES)} only")
            case Slice():
                return self._slice(node)
            case Let():
                raise self._error(node, "`let` stands at the beginning only")
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
        kinds = {self._storable(item) for item in node.items} - {"nil"}
        return list_kind(kinds.pop()) if len(kinds) == 1 else "values"

    def _map(self, node: MapLiteral) -> Kind:
        for value in node.values:
            self._storable(value)
        twice = next((name for name in node.names if node.names.count(name) > 1), None)
        if twice is not None:
            raise self._error(node, f"the name {twice!r} stands here twice")
        return "map"

    def _storable(self, node: Node) -> Kind:
        """Check what a list or an object is to hold."""
        found = self.kind(node)
        if found in _TIMES:
            remedy = ".Unix()" if found == "time" else ".Seconds()"
            raise self._error(node, f"lists and objects hold no {found}; say (..){remedy}")
        return found

    def _pointer(self, node: Pointer) -> Kind:
        if not self._elements:
            raise self._error(node, "`#` and `.name` mean the element inside any(..), filter(..) and their like only")
        return self._elements[-1]

    def _slice(self, node: Slice) -> Kind:
        base = self.kind(node.base)
        if base not in ELEMENTS and base != "string":
            raise self._error(node.base, f"{_a(base)} has no parts; lists, arrays and texts have")
        for bound in (node.start, node.end):
            if bound is not None:
                self._need(bound, INTEGERS, "an integer")
        return base if base == "string" or base in LISTS else "values"

    def _member(self, node: Member) -> Kind:
        base = self.kind(node.base)
        if base not in ("map", "any"):
            raise self._error(node, f"{self._source(node.base)} is {_a(base)} and has no field {node.name!r}")
        return "any"

    def _index(self, node: Index) -> Kind:
        base, index = self.kind(node.base), self.kind(node.index)
        wanted: dict[Kind, frozenset[Kind]] = {
            **dict.fromkeys(ELEMENTS, INTEGERS),
            "map": frozenset({"string"}),
            "any": INTEGERS | {"string"},
        }
        if base not in wanted:
            remedy = "; write text[0:1] for a character" if base == "string" else ""
            raise self._error(node.base, f"{_a(base)} has no elements{remedy}")
        if index not in wanted[base]:
            raise self._error(node.index, f"{_a(index)} is no index of {_a(base)}; use an integer or a text")
        return ELEMENTS.get(base, "any")

    def _method(self, node: Method) -> Kind:
        base = self.kind(node.base)
        if base not in METHODS:
            raise self._error(node.base, f"{_a(base)} has no methods; only times have, as in date(field).Year()")
        if node.name not in METHODS[base]:
            raise self._unknown("method", node.name, tuple(METHODS[base]), node.span)
        return METHODS[base][node.name]

    def _unary(self, node: Unary) -> Kind:
        if node.operator == "not":
            self._need(node.operand, _TRUTHS, "true or false")
            return "bool"
        return "float" if self._need(node.operand, NUMBERS | {"any"}, "a number") in ("float", "any") else "int"

    def _binary(self, node: Binary) -> Kind:
        if node.operator in ("and", "or"):
            self._need(node.left, _TRUTHS, "true or false")
            self._need(node.right, _TRUTHS, "true or false")
            return "bool"
        if node.operator == "in":
            return self._in(node)
        if node.operator == "..":
            for side in (node.left, node.right):
                self._need(side, INTEGERS, "an integer")
            return "ints"
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
        if haystack not in ELEMENTS and haystack != "map":
            raise self._error(node.right, f"`in` looks into a list, an array or an object, and this is {_a(haystack)}")
        if haystack == "map" and needle != "string":
            raise self._error(node.left, f"an object is searched for a text, and this is {_a(needle)}")
        if needle in _TIMES | DIGITS | {"array", "map"} or needle in LISTS:
            raise self._error(node.left, f"a list cannot be searched for {_a(needle)}")
        if haystack in LISTS:
            self._same(node, needle, LISTS[haystack])
        return "bool"

    def _same(self, node: Binary, left: Kind, right: Kind) -> None:
        alike = (left == right and left in _COMPARABLE) or (left in NUMBERS and right in NUMBERS)
        if alike or "nil" in (left, right):
            return
        if "any" in (left, right) and {left, right} <= NUMBERS | {"string", "bool", "any"}:
            return
        if {left, right} <= {"array", "map", "any", *LISTS} and {left, right} & {"array", "map", *LISTS}:
            raise self._error(
                node, f"{_a(left)} and {_a(right)} are not compared; compare their elements, or toJSON(..)"
            )
        raise self._error(node, f"{_a(left)} and {_a(right)} are never the same; convert one of them")

    def _ordered(self, node: Binary, left: Kind, right: Kind) -> None:
        self._refuse_two_unknown(node, left, right)
        kinds = {left, right}
        if not (kinds <= NUMBERS | {"any"} or kinds <= _TEXTS or kinds in ({"time"}, {"duration"})):
            raise self._error(node, f"{_a(left)} and {_a(right)} have no order; compare numbers, texts or times")

    def _arithmetic(self, node: Binary, left: Kind, right: Kind) -> Kind:
        kinds = {left, right}
        if kinds & _TIMES:
            return self._time_arithmetic(node, left, right)
        if node.operator == "+":
            self._refuse_two_unknown(node, left, right)
            if "string" in kinds and kinds <= _TEXTS:
                return "string"
        allowed = INTEGERS if node.operator == "%" else NUMBERS | {"any"}
        if not kinds <= allowed:
            wanted = {"%": "integers", "+": "two numbers or two texts"}.get(node.operator, "numbers")
            raise self._error(node, f"`{node.operator}` needs {wanted}, and this is {_a(left)} and {_a(right)}")
        return "int" if kinds <= INTEGERS and node.operator not in ("/", "**") else "float"

    def _time_arithmetic(self, node: Binary, left: Kind, right: Kind) -> Kind:
        results: dict[tuple[str, str, str], Kind] = {
            ("time", "-", "time"): "duration",
            ("time", "-", "duration"): "time",
            ("time", "+", "duration"): "time",
            ("duration", "+", "time"): "time",
            ("duration", "+", "duration"): "duration",
            ("duration", "-", "duration"): "duration",
            ("int", "*", "duration"): "duration",
            ("duration", "*", "int"): "duration",
        }
        found = results.get((left, node.operator, right))
        if found is None:
            raise self._error(
                node, f"`{node.operator}` of {_a(left)} and {_a(right)} has no meaning; add or subtract durations"
            )
        return found

    def _refuse_two_unknown(self, node: Binary, left: Kind, right: Kind) -> None:
        if left == right == "any":
            raise self._error(node, f"`{node.operator}` of two values of unknown type; say toFloat(..) or toString(..)")

    def _call(self, node: Call) -> Kind:
        if node.function in PREDICATES and any(isinstance(argument, Predicate) for argument in node.arguments):
            return self._ask(node)
        signature = self._functions.get(node.function)
        if signature is None:
            raise self._no_function(node)
        arguments = node.arguments
        if node.function == "waterfall" and len(arguments) == 1 and isinstance(arguments[0], ListLiteral):
            arguments = arguments[0].items
        self._check_number(node, signature, len(arguments))
        kinds = []
        for position, argument in enumerate(arguments):
            parameter = signature.parameters[min(position, len(signature.parameters) - 1)]
            kinds.append(self.kind(argument))
            if kinds[-1] not in PARAMETER_KINDS[parameter]:
                raise self._error(argument, f"{node.function} does not take {_a(kinds[-1])} here")
            if parameter == "literal" and not isinstance(argument, Literal):
                raise self._error(argument, f'{node.function} needs a literal text here, such as ","')
            if kinds[-1] == "nil" and not signature.tolerant:
                raise self._error(argument, f"{node.function} does not take nil")
        self._check_literals(node)
        self._check_one_list(node, kinds)
        return self._returned(signature, kinds)

    def _no_function(self, node: Call) -> ExpressionError:
        if node.function in PREDICATES:
            return self._error(
                node, f"{node.function} takes a list and a predicate, as in {node.function}(list, # > 1)"
            )
        if node.function == "get":
            return self._error(node, "get takes two arguments: an array or object, and an index or name")
        if node.function in UNSUPPORTED:
            return self._error(node, f"{node.function} is not supported; {UNSUPPORTED[node.function]}")
        return self._unknown("function", node.function, (*self._functions, *PREDICATES, "get"), node.span)

    def _check_number(self, node: Call, signature: Signature, given: int) -> None:
        most = len(signature.parameters)
        least = most - signature.optional
        if given < least or (given > most and not signature.repeated):
            more = " or more" if signature.repeated else f" to {most}" if signature.optional else ""
            raise self._error(node, f"{node.function} takes {least}{more} argument(s), and here are {given}")

    def _check_literals(self, node: Call) -> None:
        last = node.arguments[-1] if node.arguments else None
        if not isinstance(last, Literal) or not isinstance(last.value, str):
            return
        if node.function == "sort" and last.value not in ("asc", "desc"):
            raise self._error(last, 'the order is "asc" or "desc"')
        if node.function == "duration":
            try:
                microseconds(last.value)
            except ValueError as error:
                raise self._error(last, str(error)) from None

    def _check_one_list(self, node: Call, kinds: list[Kind]) -> None:
        """Waterfall, min and max take several values or one list, and no mixture."""
        if node.function not in ("waterfall", "min", "max") or len(kinds) == 1:
            return
        for argument, kind in zip(node.arguments, kinds, strict=False):
            if kind in ELEMENTS and kind != "any":
                raise self._error(
                    argument, f"{node.function} takes several values or one list, not {_a(kind)} among others"
                )

    @staticmethod
    def _returned(signature: Signature, kinds: list[Kind]) -> Kind:
        match signature.returns:
            case "number":
                return "int" if {LISTS.get(kind, kind) for kind in kinds} <= INTEGERS else "float"
            case "element":
                return ELEMENTS[kinds[0]]
            case "same":
                return kinds[0] if kinds[0] in LISTS else "values"
            case "joined":
                return kinds[0] if len(set(kinds)) == 1 and kinds[0] in LISTS else "values"
            case found:
                return found

    def _ask(self, node: Call) -> Kind:
        """Check a list and what is asked of each of its elements."""
        match node.arguments:
            case (listed, Predicate(body=body)) if not isinstance(listed, Predicate):
                pass
            case _:
                raise self._error(
                    node, f"{node.function} takes a list and a predicate, as in {node.function}(list, # > 1)"
                )
        kind = self.kind(listed)
        if kind not in ELEMENTS:
            raise self._error(listed, f"{node.function} looks into a list or an array, and this is {_a(kind)}")
        if len(self._elements) == _DEEPEST_PREDICATE:
            raise self._error(
                node, f"predicates are nested deeper than {_DEEPEST_PREDICATE} here; split the expression"
            )
        self._elements.append(ELEMENTS[kind])
        match node.function:
            case "map":
                said = self._storable(body)
            case "sum":
                said = self._need(body, NUMBERS | {"any"}, "a number")
            case _:
                said = self._need(body, _TRUTHS, "true or false")
        self._elements.pop()
        match PREDICATES[node.function]:
            case "element":
                return ELEMENTS[kind]
            case "same":
                return kind if kind in LISTS else "values"
            case "list":
                return list_kind(said)
            case "number":
                return "int" if said in INTEGERS else "float"
            case found:
                return found

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
            engine_pattern(node.value)
        except ValueError as error:
            raise self._error(node, f"not a regular expression that Go takes: {error}") from None

    def _begins_with_field(self, path: str) -> bool:
        return any(name in self._fields for name in _beginnings(path)[:-1])

    def _unknown(self, what: str, name: str, known: tuple[str, ...], span: Span) -> ExpressionError:
        close = get_close_matches(name, known, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"
        return ExpressionError(self._text, span, f"unknown {what} {name!r}; {remedy}")

    def _error(self, node: Node, problem: str) -> ExpressionError:
        return ExpressionError(self._text, node.span, problem)

    def _source(self, node: Node) -> str:
        return source(self._text, node)


def source(text: str, node: Node) -> str:
    """Give a node as it is written in the text; the element that `.name` looks into is `#`."""
    return "#" if isinstance(node, Pointer) else text[node.span.start : node.span.end]


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


def _beginnings(path: str) -> list[str]:
    """Give `a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _literal_kind(value: str | float | bool | None) -> Kind:
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "int" if isinstance(value, int) else "float"
