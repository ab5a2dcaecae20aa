"""Check an expression against the declared fields, and determine the kind of its value.

Names are resolved to fields: of a dotted name the longest declared prefix is the field, and the rest is looked up
inside that field. Every mistake that can be known without a record is an ExpressionError with its position in the
text; what depends on the record (nil, the type of a value inside an undeclared object) is left to the evaluation.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from glassflow_dagster.definition.expressions import syntax
from glassflow_dagster.definition.expressions.durations import microseconds
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.expressions.parse import parse
from glassflow_dagster.definition.expressions.patterns import engine_pattern
from glassflow_dagster.definition.expressions.signatures import (
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

INTEGERS: frozenset[Kind] = frozenset({"int", "uint"})
NUMBERS: frozenset[Kind] = INTEGERS | {"float"}
# Fields with more digits than any number of this language holds; they only pass through.
DIGITS: frozenset[Kind] = frozenset({"decimal", "bigint", "ubigint"})
_TEXTS: frozenset[Kind] = frozenset({"string", "any"})
_TRUTHS: frozenset[Kind] = frozenset({"bool", "any"})
# Kinds whose values can be compared with == to another of the same kind.
_COMPARABLE: frozenset[Kind] = frozenset({"string", "bool", "time", "duration", "strings", "ints", "floats", "bools"})
# Kinds that no list and no object can hold, and that do not mix with other kinds.
_TIME_KINDS: frozenset[Kind] = frozenset({"time", "duration"})

_ORDER_OPERATORS = ("<", "<=", ">", ">=")
_TEXT_TESTS = ("contains", "startsWith", "endsWith")

# A variable's value stands at each of its uses, and the tree is walked as a whole; the evaluation is recursive, and a
# predicate in a predicate multiplies the lengths of their lists.
_MAX_NODES = 2000
_MAX_TREE_DEPTH = 100
_MAX_PREDICATE_DEPTH = 4


@dataclass(frozen=True)
class Checked:
    """A valid expression: its tree with names resolved to fields, and the kind of every node."""

    text: str
    root: syntax.Node
    kinds: Mapping[syntax.Node, Kind]
    functions: Mapping[str, Signature]

    @property
    def kind(self) -> Kind:
        """The kind of the expression's value."""
        return self.kinds[self.root]


def check_filter(text: str, fields: Mapping[str, Kind]) -> Checked:
    """Check the condition of a filter, which must be true or false; raises ExpressionError.

    fields: the kind of each declared field by its (dotted) name.
    """
    checked = _check(text, fields, FILTER_FUNCTIONS)
    if checked.kind not in _TRUTHS:
        raise ExpressionError(
            text, checked.root.span, f"a filter needs true or false, but this is {_described(checked.kind)}"
        )
    return checked


def check_transform(text: str, fields: Mapping[str, Kind]) -> Checked:
    """Check an expression of a transform: any kind but duration; raises ExpressionError. fields: see check_filter."""
    checked = _check(text, fields, TRANSFORM_FUNCTIONS)
    if checked.kind == "duration":
        raise ExpressionError(
            text, checked.root.span, "a duration cannot be an output; choose a unit, as in (..).Seconds()"
        )
    return checked


def undeclared_names(text: str, declared: Collection[str]) -> tuple[str, ...]:
    """Return the field names that an expression reads and that are not declared, in order and without duplicates.

    A dotted name counts as declared when a prefix of it is; of an undeclared `a.b` the name is `a`. Raises
    ExpressionError for a syntax error.
    """
    undeclared: dict[str, None] = {}  # an ordered set

    def visit(node: syntax.Node, variables: frozenset[str]) -> None:
        path = _dotted_name(node)
        if path is not None:
            first_part = path.split(".")[0]
            if first_part not in variables and not any(name in declared for name in _prefixes(path)):
                undeclared[first_part] = None
            return
        if isinstance(node, syntax.Let):
            visit(node.value, variables)
            visit(node.body, variables | {node.name})
            return
        for child in _children(node):
            visit(child, variables)

    visit(parse(text), frozenset())
    return tuple(undeclared)


def field_names(checked: Checked) -> frozenset[str]:
    """Return the declared fields that a valid expression reads."""

    def visit(node: syntax.Node) -> Iterator[str]:
        if isinstance(node, syntax.Field):
            yield node.name
        for child in _children(node):
            yield from visit(child)

    return frozenset(visit(checked.root))


def _children(node: syntax.Node) -> Iterator[syntax.Node]:
    """Yield the nodes that a node holds, alone or in a tuple, in the order of its attributes."""
    for attribute in dataclasses.fields(node):
        value = getattr(node, attribute.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, syntax.Node):
                yield item


def list_kind(element: Kind) -> Kind:
    """Return the kind of a list by the kind of its elements."""
    return next((kind for kind, element_kind in LISTS.items() if element_kind == element), "values")


def common_kind(left: Kind, right: Kind) -> Kind | None:
    """Return the kind of a value that is of one or the other kind, as in `a ? b : c`; None when they do not mix."""
    if right in (left, "nil"):
        return left
    if left == "nil":
        return right
    # Two integer kinds become int; with a float, float.
    if left in NUMBERS and right in NUMBERS:
        return "int" if left in INTEGERS and right in INTEGERS else "float"
    return None if {left, right} & (_TIME_KINDS | DIGITS) else "any"


def _check(text: str, fields: Mapping[str, Kind], functions: Mapping[str, Signature]) -> Checked:
    """Parse an expression, resolve its names to fields, and check the kind of every node; raises ExpressionError."""
    checker = _Checker(text, fields, functions)
    root = checker.resolve(parse(text))
    checker.kind(root)
    return Checked(text, root, checker.kinds, functions)


def _described(kind: Kind) -> str:
    """Return a kind as an error message names it: `an integer`."""
    words: dict[Kind, str] = {
        "string": "a string",
        "int": "an integer",
        "uint": "an integer",
        "float": "a float",
        "bool": "true or false",
        "array": "an array",
        "map": "an object",
        "decimal": "a decimal (use toFloat(..) or toString(..))",
        "bigint": "a wide integer (use toFloat(..) or toString(..))",
        "ubigint": "a wide integer (use toFloat(..) or toString(..))",
        "any": "a value of unknown type",
        "strings": "a list of strings",
        "ints": "a list of integers",
        "floats": "a list of floats",
        "bools": "a list of bools",
        "values": "a list",
        "time": "a time",
        "duration": "a duration",
        "nil": "nil",
    }
    return words[kind]


class _Checker:
    """Checks one expression: `resolve` replaces names by fields, then `kind` determines the kind of every node."""

    def __init__(self, text: str, fields: Mapping[str, Kind], functions: Mapping[str, Signature]) -> None:
        self._text = text
        self._fields = fields
        self._functions = functions
        # The resolved value of each `let` variable.
        self._variables: dict[str, syntax.Node] = {}
        # The kind of `#` in each enclosing predicate, the innermost last.
        self._element_kinds: list[Kind] = []
        # id of a node -> the number of its nodes and levels.
        self._sizes: dict[int, tuple[int, int]] = {}
        # The kind of each node that is checked.
        self.kinds: dict[syntax.Node, Kind] = {}

    def resolve(self, node: syntax.Node) -> syntax.Node:
        """Return the tree with each name replaced by its field, or by the value of its `let` variable.

        A dotted name such as `a.b` is a field when it is declared as one; else `.b` reads from the object in field `a`.
        Raises ExpressionError for an unknown name.
        """
        if isinstance(node, syntax.Let):
            return self._let(node)
        if isinstance(node, syntax.Name) and node.name in self._variables:
            return self._variables[node.name]
        path = _dotted_name(node)
        if path is not None and path.split(".")[0] not in self._variables:
            if path in self._fields:
                return syntax.Field(path, node.span)
            if isinstance(node, syntax.Name) or not self._begins_with_field(path):
                raise self._unknown("field", path, tuple(self._fields), node.span)
        changes: dict[str, Any] = {
            attribute.name: self._resolve_part(getattr(node, attribute.name)) for attribute in dataclasses.fields(node)
        }
        return dataclasses.replace(node, **changes)

    def _let(self, node: syntax.Let) -> syntax.Node:
        """Return the body of a `let` with the variable's value inlined; too long a result is an error."""
        if self._begins_with_field(f"{node.name}.") or node.name in self._variables:
            raise self._error(node, f"{node.name!r} is already defined; give the variable another name")
        self._variables[node.name] = self.resolve(node.value)
        body = self.resolve(node.body)
        size, depth = self._size_and_depth(body)
        if size > _MAX_NODES or depth > _MAX_TREE_DEPTH:
            raise self._error(node, "too long after the variables are inserted; split it into several outputs")
        return body

    def _size_and_depth(self, node: syntax.Node) -> tuple[int, int]:
        """Return the number of nodes and of levels; an inlined value counts at each use but is walked once."""
        if id(node) not in self._sizes:
            below = [self._size_and_depth(child) for child in _children(node)]
            size = 1 + sum(size for size, _ in below)
            self._sizes[id(node)] = size, 1 + max((depth for _, depth in below), default=0)
        return self._sizes[id(node)]

    def _resolve_part(self, part: Any) -> Any:
        """Resolve an attribute of a node: a node, a tuple of nodes, or a plain value, which stays as it is."""
        if isinstance(part, tuple):
            return tuple(self._resolve_part(item) for item in part)
        return self.resolve(part) if isinstance(part, syntax.Node) else part

    def kind(self, node: syntax.Node) -> Kind:
        """Return the kind of a node, after checking it and everything below it; note it in `kinds`."""
        kind = self._kind(node)
        self.kinds[node] = kind
        return kind

    def _kind(self, node: syntax.Node) -> Kind:
        """Check a node by its type, and return its kind; raises ExpressionError."""
        match node:
            case syntax.Literal(value=value):
                return _literal_kind(value)
            case syntax.Field(name=name):
                return self._fields[name]
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.Pointer():
                return self._pointer(node)
            case syntax.Predicate():
                raise self._error(node, f"a predicate is allowed in {', '.join(PREDICATES)} only")
            case syntax.Slice():
                return self._slice(node)
            case syntax.Let():
                raise self._error(node, "`let` is allowed at the beginning only")
            case syntax.Member():
                return self._member(node)
            case syntax.Index():
                return self._index(node)
            case syntax.Method():
                return self._method(node)
            case syntax.Unary():
                return self._unary(node)
            case syntax.Ternary(condition=condition, then=then, otherwise=otherwise):
                self._require(condition, _TRUTHS, "true or false")
                return self._common_kind(node, self.kind(then), self.kind(otherwise))
            case syntax.Binary():
                return self._binary(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Name(name=name):
                raise self._unknown("field", name, tuple(self._fields), node.span)

    def _list(self, node: syntax.ListLiteral) -> Kind:
        """Return the kind of `[a, b]`: a list of the items' kind, or "values" when they differ."""
        kinds = {self._storable(item) for item in node.items} - {"nil"}
        return list_kind(kinds.pop()) if len(kinds) == 1 else "values"

    def _map(self, node: syntax.MapLiteral) -> Kind:
        """Check `{a: 1, b: 2}`: values that an object can hold, and no repeated name."""
        for value in node.values:
            self._storable(value)
        repeated_name = next((name for name in node.names if node.names.count(name) > 1), None)
        if repeated_name is not None:
            raise self._error(node, f"the name {repeated_name!r} occurs twice here")
        return "map"

    def _storable(self, node: syntax.Node) -> Kind:
        """Return the kind of an item of a list or object; times and durations are errors there."""
        kind = self.kind(node)
        if kind in _TIME_KINDS:
            remedy = ".Unix()" if kind == "time" else ".Seconds()"
            raise self._error(node, f"lists and objects cannot hold a {kind}; use (..){remedy}")
        return kind

    def _pointer(self, node: syntax.Pointer) -> Kind:
        """Return the kind of `#`, the element in the innermost predicate; outside of one it is an error."""
        if not self._element_kinds:
            raise self._error(node, "`#` and `.name` refer to the element only inside any(..), filter(..) and the like")
        return self._element_kinds[-1]

    def _slice(self, node: syntax.Slice) -> Kind:
        """Check `base[start:end]` of a list, an array or a string; a slice of an array is a list of JSON values."""
        base = self.kind(node.base)
        if base not in ELEMENTS and base != "string":
            raise self._error(node.base, f"{_described(base)} cannot be sliced; lists, arrays and strings can")
        for bound in (node.start, node.end):
            if bound is not None:
                self._require(bound, INTEGERS, "an integer")
        return base if base == "string" or base in LISTS else "values"

    def _member(self, node: syntax.Member) -> Kind:
        """Check `base.name` of an object or a JSON value; what it reads is known from the record only: kind "any"."""
        base = self.kind(node.base)
        if base not in ("map", "any"):
            nearest_names = get_close_matches(self._source(node), self._fields, n=1)
            remedy = f"; did you mean {nearest_names[0]!r}?" if nearest_names else ""
            text = f"{self._source(node.base)} is {_described(base)} and has no field {node.name!r}{remedy}"
            raise self._error(node, text)
        return "any"

    def _index(self, node: syntax.Index) -> Kind:
        """Check `base[index]`: lists take integers, objects texts, values of unknown type both."""
        base, index = self.kind(node.base), self.kind(node.index)
        # Kind of the base -> the kinds that its index may have.
        index_kinds: dict[Kind, frozenset[Kind]] = {
            **dict.fromkeys(ELEMENTS, INTEGERS),
            "map": frozenset({"string"}),
            "any": INTEGERS | {"string"},
        }
        if base not in index_kinds:
            remedy = "; write text[0:1] for a character" if base == "string" else ""
            raise self._error(node.base, f"{_described(base)} has no elements{remedy}")
        if index not in index_kinds[base]:
            raise self._error(
                node.index, f"{_described(index)} cannot index {_described(base)}; use an integer or a string"
            )
        return ELEMENTS.get(base, "any")

    def _method(self, node: syntax.Method) -> Kind:
        """Check a method call such as `date(field).Year()`."""
        base = self.kind(node.base)
        if base not in METHODS:
            raise self._error(
                node.base, f"{_described(base)} has no methods; only times have methods, as in date(field).Year()"
            )
        if node.name not in METHODS[base]:
            raise self._unknown("method", node.name, tuple(METHODS[base]), node.span)
        return METHODS[base][node.name]

    def _unary(self, node: syntax.Unary) -> Kind:
        """Check `not` of a bool, or `-` and `+` of a number; of a JSON value they are float."""
        if node.operator == "not":
            self._require(node.operand, _TRUTHS, "true or false")
            return "bool"
        return "float" if self._require(node.operand, NUMBERS | {"any"}, "a number") in ("float", "any") else "int"

    def _binary(self, node: syntax.Binary) -> Kind:
        """Check an operator's operands, and return the kind of the result."""
        if node.operator in ("and", "or"):
            self._require(node.left, _TRUTHS, "true or false")
            self._require(node.right, _TRUTHS, "true or false")
            return "bool"
        if node.operator == "in":
            return self._in(node)
        if node.operator == "..":
            for side in (node.left, node.right):
                self._require(side, INTEGERS, "an integer")
            return "ints"
        left, right = self.kind(node.left), self.kind(node.right)
        if node.operator == "??":
            return self._common_kind(node, left, right)
        if node.operator in ("==", "!="):
            self._check_equality(node, left, right)
            return "bool"
        if node.operator in _ORDER_OPERATORS:
            self._check_order(node, left, right)
            return "bool"
        if node.operator in (*_TEXT_TESTS, "matches"):
            for side in (node.left, node.right):
                self._require(side, _TEXTS, "a string")
            if node.operator == "matches":
                self._check_pattern(node.right)
            return "bool"
        return self._arithmetic(node, left, right)

    def _in(self, node: syntax.Binary) -> Kind:
        """Check `needle in haystack`, where the haystack is a list, an array or an object."""
        needle = self.kind(node.left)
        if isinstance(node.right, syntax.ListLiteral):
            for item in node.right.items:
                self._check_equality(syntax.Binary("==", node.left, item, item.span), needle, self.kind(item))
            return "bool"
        haystack = self.kind(node.right)
        if haystack not in ELEMENTS and haystack != "map":
            raise self._error(
                node.right, f"`in` searches a list, an array or an object, but this is {_described(haystack)}"
            )
        if haystack == "map" and needle != "string":
            raise self._error(node.left, f"an object is searched for a string, but this is {_described(needle)}")
        if needle in _TIME_KINDS | DIGITS | {"array", "map"} or needle in LISTS:
            raise self._error(node.left, f"a list cannot be searched for {_described(needle)}")
        if haystack in LISTS:
            self._check_equality(node, needle, LISTS[haystack])
        return "bool"

    def _check_equality(self, node: syntax.Binary, left: Kind, right: Kind) -> None:
        """Raise ExpressionError when values of two kinds cannot be compared with ==, or are never equal."""
        # Values of the same kind, or two numbers.
        is_comparable = (left == right and left in _COMPARABLE) or (left in NUMBERS and right in NUMBERS)
        if is_comparable or "nil" in (left, right):
            return
        if "any" in (left, right) and {left, right} <= NUMBERS | {"string", "bool", "any"}:
            return
        if {left, right} <= {"array", "map", "any", *LISTS} and {left, right} & {"array", "map", *LISTS}:
            raise self._error(
                node,
                f"{_described(left)} and {_described(right)} cannot be compared; compare their elements, or toJSON(..)",
            )
        raise self._error(node, f"{_described(left)} and {_described(right)} are never equal; convert one of them")

    def _check_order(self, node: syntax.Binary, left: Kind, right: Kind) -> None:
        """Raise ExpressionError when values of two kinds cannot be compared with `<` and the like."""
        self._reject_two_unknown(node, left, right)
        kinds = {left, right}
        if not (kinds <= NUMBERS | {"any"} or kinds <= _TEXTS or kinds in ({"time"}, {"duration"})):
            raise self._error(
                node, f"{_described(left)} and {_described(right)} have no order; compare numbers, strings or times"
            )

    def _arithmetic(self, node: syntax.Binary, left: Kind, right: Kind) -> Kind:
        """Check `+ - * / % **` and return the kind of the result.

        Times and durations have rules of their own; `+` also joins texts; `%` takes integers, the other operators any
        numbers. With a JSON value the result is float.
        """
        kinds = {left, right}
        if kinds & _TIME_KINDS:
            return self._time_arithmetic(node, left, right)
        if node.operator == "+":
            self._reject_two_unknown(node, left, right)
            if "string" in kinds and kinds <= _TEXTS:
                return "string"
        allowed = INTEGERS if node.operator == "%" else NUMBERS | {"any"}
        if not kinds <= allowed:
            wanted = {"%": "integers", "+": "two numbers or two strings"}.get(node.operator, "numbers")
            raise self._error(
                node, f"`{node.operator}` needs {wanted}, but these are {_described(left)} and {_described(right)}"
            )
        return "int" if kinds <= INTEGERS and node.operator not in ("/", "**") else "float"

    def _time_arithmetic(self, node: syntax.Binary, left: Kind, right: Kind) -> Kind:
        """Return the kind of `+`, `-` or `*` with a time or duration; raises ExpressionError for other combinations."""
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
        result = results.get((left, node.operator, right))
        if result is None:
            operation = f"`{node.operator}` of {_described(left)} and {_described(right)}"
            raise self._error(node, f"{operation} is not supported; add or subtract durations")
        return result

    def _reject_two_unknown(self, node: syntax.Binary, left: Kind, right: Kind) -> None:
        """Raise ExpressionError when both kinds are unknown: only the record would tell numbers from texts."""
        if left == right == "any":
            raise self._error(node, f"`{node.operator}` of two values of unknown type; use toFloat(..) or toString(..)")

    def _call(self, node: syntax.Call) -> Kind:
        """Check a function call: the number, the kinds and the literals of its arguments."""
        if node.function in PREDICATES and any(isinstance(argument, syntax.Predicate) for argument in node.arguments):
            return self._predicate_call(node)
        signature = self._functions.get(node.function)
        if signature is None:
            raise self._unknown_function(node)
        arguments = node.arguments
        # waterfall([a, b]) is waterfall(a, b).
        if node.function == "waterfall" and len(arguments) == 1 and isinstance(arguments[0], syntax.ListLiteral):
            arguments = arguments[0].items
        self._check_argument_count(node, signature, len(arguments))
        kinds = []
        for position, argument in enumerate(arguments):
            # The last parameter may take several arguments.
            parameter = signature.parameters[min(position, len(signature.parameters) - 1)]
            kinds.append(self.kind(argument))
            if kinds[-1] not in PARAMETER_KINDS[parameter]:
                raise self._error(argument, f"{node.function} does not take {_described(kinds[-1])} here")
            if parameter == "literal" and not isinstance(argument, syntax.Literal):
                raise self._error(argument, f'{node.function} needs a literal string here, such as ","')
            if kinds[-1] == "nil" and not signature.tolerant:
                raise self._error(argument, f"{node.function} does not take nil")
        self._check_literals(node)
        self._check_one_list(node, kinds)
        return self._result_kind(signature, kinds)

    def _unknown_function(self, node: syntax.Call) -> ExpressionError:
        """Return the error for a call that no signature describes, with what to write instead."""
        if node.function in PREDICATES:
            return self._error(
                node, f"{node.function} takes a list and a predicate, as in {node.function}(list, # > 1)"
            )
        if node.function == "get":
            return self._error(node, "get takes two arguments: an array or object, and an index or name")
        if node.function in UNSUPPORTED:
            return self._error(node, f"{node.function} is not supported; {UNSUPPORTED[node.function]}")
        return self._unknown("function", node.function, (*self._functions, *PREDICATES, "get"), node.span)

    def _check_argument_count(self, node: syntax.Call, signature: Signature, count: int) -> None:
        """Raise ExpressionError when a call has fewer or more arguments than the signature allows."""
        max_count = len(signature.parameters)
        min_count = max_count - signature.optional
        if count < min_count or (count > max_count and not signature.repeated):
            more = " or more" if signature.repeated else f" to {max_count}" if signature.optional else ""
            raise self._error(node, f"{node.function} takes {min_count}{more} argument(s), but has {count}")

    def _check_literals(self, node: syntax.Call) -> None:
        """Raise ExpressionError when the last argument of sort() or duration() is an invalid literal."""
        last_argument = node.arguments[-1] if node.arguments else None
        if not isinstance(last_argument, syntax.Literal) or not isinstance(last_argument.value, str):
            return
        if node.function == "sort" and last_argument.value not in ("asc", "desc"):
            raise self._error(last_argument, 'the order is "asc" or "desc"')
        if node.function == "duration":
            try:
                microseconds(last_argument.value)
            except ValueError as error:
                raise self._error(last_argument, str(error)) from None

    def _check_one_list(self, node: syntax.Call, kinds: list[Kind]) -> None:
        """Raise ExpressionError when waterfall, min or max gets a list among several values; one list is allowed."""
        if node.function not in ("waterfall", "min", "max") or len(kinds) == 1:
            return
        for argument, kind in zip(node.arguments, kinds, strict=False):
            if kind in ELEMENTS and kind != "any":
                raise self._error(
                    argument, f"{node.function} takes several values or one list, not {_described(kind)} among others"
                )

    @staticmethod
    def _result_kind(signature: Signature, kinds: list[Kind]) -> Kind:
        """Return the kind of a call's result by the kinds of its arguments; see `Signature.returns`."""
        match signature.returns:
            case "number":
                return "int" if {LISTS.get(kind, kind) for kind in kinds} <= INTEGERS else "float"
            case "element":
                return ELEMENTS[kinds[0]]
            case "same":
                return kinds[0] if kinds[0] in LISTS else "values"
            case "joined":
                return kinds[0] if len(set(kinds)) == 1 and kinds[0] in LISTS else "values"
            case kind:
                return kind

    def _predicate_call(self, node: syntax.Call) -> Kind:
        """Check a call such as `filter(list, # > 1)`, the predicate for the list's elements; return the kind."""
        match node.arguments:
            case (list_node, syntax.Predicate(body=body)) if not isinstance(list_node, syntax.Predicate):
                pass
            case _:
                raise self._error(
                    node, f"{node.function} takes a list and a predicate, as in {node.function}(list, # > 1)"
                )
        kind = self.kind(list_node)
        if kind not in ELEMENTS:
            raise self._error(list_node, f"{node.function} searches a list or an array, but this is {_described(kind)}")
        if len(self._element_kinds) == _MAX_PREDICATE_DEPTH:
            raise self._error(
                node, f"predicates are nested deeper than {_MAX_PREDICATE_DEPTH} here; split the expression"
            )
        self._element_kinds.append(ELEMENTS[kind])
        match node.function:
            case "map":
                body_kind = self._storable(body)
            case "sum":
                body_kind = self._require(body, NUMBERS | {"any"}, "a number")
            case _:
                body_kind = self._require(body, _TRUTHS, "true or false")
        self._element_kinds.pop()
        match PREDICATES[node.function]:
            case "element":
                return ELEMENTS[kind]
            case "same":
                return kind if kind in LISTS else "values"
            case "list":
                return list_kind(body_kind)
            case "number":
                return "int" if body_kind in INTEGERS else "float"
            case result:
                return result

    def _common_kind(self, node: syntax.Node, left: Kind, right: Kind) -> Kind:
        """Return the common kind of two alternatives; raises ExpressionError when they do not mix."""
        kind = common_kind(left, right)
        if kind is None:
            raise self._error(
                node, f"the value would be {_described(left)} or {_described(right)}; give both the same type"
            )
        return kind

    def _require(self, node: syntax.Node, allowed: frozenset[Kind], wanted: str) -> Kind:
        """Return the kind of a node; raises ExpressionError unless it is allowed. wanted: the allowed kinds as text."""
        kind = self.kind(node)
        if kind not in allowed:
            raise self._error(node, f"{wanted} is needed here, but this is {_described(kind)}")
        return kind

    def _check_pattern(self, node: syntax.Node) -> None:
        """Raise ExpressionError unless the pattern of `matches` is a literal that Go's regular expressions accept."""
        if not isinstance(node, syntax.Literal) or not isinstance(node.value, str):
            raise self._error(node, "the pattern of `matches` must be a literal string")
        try:
            engine_pattern(node.value)
        except ValueError as error:
            raise self._error(node, f"not a valid Go regular expression: {error}") from None

    def _begins_with_field(self, path: str) -> bool:
        """Return whether a declared field is a prefix of a dotted name, such as `a` or `a.b` of `a.b.c`."""
        return any(name in self._fields for name in _prefixes(path)[:-1])

    def _unknown(self, what: str, name: str, valid_names: tuple[str, ...], span: syntax.Span) -> ExpressionError:
        """Return the error for an unknown name, with the nearest valid name or all. what: "field", "method" ..."""
        nearest_names = get_close_matches(name, valid_names, n=1)
        remedy = (
            f"did you mean {nearest_names[0]!r}?"
            if nearest_names
            else f"known are {', '.join(sorted(valid_names)) or 'none'}"
        )
        return ExpressionError(self._text, span, f"unknown {what} {name!r}; {remedy}")

    def _error(self, node: syntax.Node, problem: str) -> ExpressionError:
        return ExpressionError(self._text, node.span, problem)

    def _source(self, node: syntax.Node) -> str:
        return source(self._text, node)


def source(text: str, node: syntax.Node) -> str:
    """Return a node's source text; `#` for the pointer, which `.name` implies without writing it."""
    return "#" if isinstance(node, syntax.Pointer) else text[node.span.start : node.span.end]


def _dotted_name(node: syntax.Node) -> str | None:
    """Return the dotted name of a chain such as `a.b.c`; None for any other node."""
    match node:
        case syntax.Name(name=name):
            return name
        case syntax.Member(base=base, name=name):
            base_name = _dotted_name(base)
            return None if base_name is None else f"{base_name}.{name}"
        case _:
            return None


def _prefixes(path: str) -> list[str]:
    """Return the dotted prefixes of a name: `a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _literal_kind(value: str | float | bool | None) -> Kind:
    """Return the kind of a literal value; bool first, since True and False are of type int in Python, too."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "int" if isinstance(value, int) else "float"
