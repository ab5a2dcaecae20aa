"""From a checked expression to two Spark columns: its value, and why there is none.

What expr would raise for one record (arithmetic on nil, an index out of range) is the second column, so that the
record can become a dead letter and the others go on. Like expr, `and`, `or`, `??` and `? :` look at their right side
only where it counts. No function is used that raises for a value, and none that runs Python.

Within this module a part's value means nothing where its error is set; only the finished column says NULL there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.expressions.columns import variants
from glassflow_dagster.expressions.columns.functions import (
    BUILTIN_BUILDERS,
    HELPER_BUILDERS,
    METHOD_BUILDERS,
    Operand,
)
from glassflow_dagster.expressions.columns.lists import Asked, ask, part_of_list, part_of_text
from glassflow_dagster.expressions.columns.steps import Steps
from glassflow_dagster.expressions.language.check import INTEGERS, NUMBERS, Checked, list_kind, source
from glassflow_dagster.expressions.language.patterns import engine_pattern
from glassflow_dagster.expressions.language.signatures import ELEMENTS, LISTS, PREDICATES, Kind, Parameter
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
    Ternary,
    Unary,
)

# Under this name `columns` holds what now() gives; no expression can name a field so.
BATCH_TIME = "now()"

# How a value of each kind is carried.
COLUMN_TYPES: Mapping[Kind, str] = {
    "string": "string",
    "int": "bigint",
    "uint": "decimal(20,0)",
    "float": "double",
    "bool": "boolean",
    "array": "variant",
    "map": "variant",
    "decimal": "string",
    "bigint": "string",
    "ubigint": "string",
    "any": "variant",
    "strings": "array<string>",
    "ints": "array<bigint>",
    "floats": "array<double>",
    "bools": "array<boolean>",
    "values": "array<variant>",
    "time": "timestamp",
    # Microseconds, which is what timestamps count.
    "duration": "bigint",
    "nil": "string",
}

# Fields that come as their JSON text.
_JSON_KINDS: frozenset[Kind] = frozenset({"array", "map", "any"})

_WANTED: Mapping[Kind, str] = {"string": "text", "float": "number", "bool": "truth value"}


@dataclass(frozen=True)
class Compiled:
    """An expression's value (of COLUMN_TYPES[kind], NULL for nil) and its error: STRING, NULL where there is none."""

    value: Column
    error: Column
    kind: Kind


@dataclass(frozen=True)
class _Part:
    """A node's columns. error None: it never fails. nullable False: it is never nil.

    ended: whether a chain of names has ended at a `?.`, so that all that follows in it is nil; None where it has none.
    """

    value: Column
    error: Column | None = None
    nullable: bool = True
    ended: Column | None = None


def compile_expression(checked: Checked, columns: Mapping[str, Column], steps: Steps) -> Compiled:
    """Compile a checked expression. What it gives can be used where `steps` have been taken.

    columns: the column of each declared field; STRING, BIGINT, DECIMAL(20,0), DOUBLE or BOOLEAN by its kind, arrays,
    objects and values of any kind as their JSON text. Under BATCH_TIME: what now() gives, the TIMESTAMP of the batch,
    so that a batch that is done again says the same; needed where an expression calls now(). The session's time zone
    must be UTC.
    """
    part = _Compiler(checked, columns, steps).finished()
    error = F.lit(None).cast("string") if part.error is None else part.error
    value = part.value if part.error is None else F.when(part.error.isNull(), part.value)
    return Compiled(value, error, checked.kind)


class _Compiler:
    """Carries the expression and the fields' columns through the tree."""

    def __init__(self, checked: Checked, columns: Mapping[str, Column], steps: Steps) -> None:
        self._checked = checked
        self._columns = columns
        self._steps = steps
        # The elements that predicates are being compiled for, the innermost last.
        self._pointers: list[Column] = []
        # What the nodes became that no predicate encloses, and how many steps each needs.
        self._parts: dict[tuple[str, Node], tuple[_Part, int]] = {}
        # The steps that the node being compiled needs so far.
        self._depth = 0

    def finished(self) -> _Part:
        """Compile the whole; a float that JSON cannot write is an error, as it is in GlassFlow."""
        return self._finite(self._checked.root)

    def _finite(self, node: Node) -> _Part:
        part = self._part(node)
        if self._kind(node) != "float" or isinstance(node, Literal | Field):
            return part
        odd = F.isnan(part.value) | (F.abs(part.value) == F.lit(float("inf")))
        return self._fails(node, part, odd, "the result is no finite number")

    def _kind(self, node: Node) -> Kind:
        return self._checked.kinds[node]

    def _part(self, node: Node) -> _Part:
        return self._stepwise("part", node, self._make)

    def _stepwise(self, use: str, node: Node, make: Callable[[Node], _Part]) -> _Part:
        """Give a node's columns, computed in a step of their own: their parents name them more than once.

        Within a predicate there are no steps to take: there an element's columns stand as they are.
        """
        if self._pointers or isinstance(node, Literal) or self._is_plain(node):
            return make(node)
        if (use, node) not in self._parts:
            outer, self._depth = self._depth, 0
            part = make(node)
            step = self._depth + 1
            self._parts[use, node] = self._stepped(part, step), step
            self._depth = outer
        part, step = self._parts[use, node]
        self._depth = max(self._depth, step)
        return part

    def _is_plain(self, node: Node) -> bool:
        return isinstance(node, Field) and self._kind(node) not in _JSON_KINDS

    def _stepped(self, part: _Part, step: int) -> _Part:
        error, ended = (
            column if column is None else self._steps.take(column, step) for column in (part.error, part.ended)
        )
        return replace(part, value=self._steps.take(part.value, step), error=error, ended=ended)

    def _make(self, node: Node) -> _Part:
        match node:
            case Literal(value=value):
                return _Part(F.lit(value).cast(COLUMN_TYPES[self._kind(node)]), nullable=value is None)
            case Field(name=name):
                return _Part(_field(self._columns[name], self._kind(node)))
            case ListLiteral(items=items):
                return self._list(items, self._kind(node))
            case MapLiteral(names=names, values=values):
                return self._map(names, values)
            case Slice():
                return self._slice(node)
            case Member() | Index() | Pointer():
                part = self._inside(node)
                inner = self._kind(node) == "any"
                return _Part(variants.without_null(part.value), part.error) if inner else part
            case Method(base=base, name=name):
                part = self._strict(node, base)
                found = METHOD_BUILDERS[self._kind(base)][name](part.value)
                return _Part(found.cast(COLUMN_TYPES[self._kind(node)]), part.error, nullable=False)
            case Unary():
                return self._unary(node)
            case Ternary():
                return self._ternary(node)
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)
            case Name() | Let() | Predicate():
                raise AssertionError(f"the checker let {self._source(node)!r} through")

    # Operands: converted to what an operator works on, with an error where the record holds something else.

    def _strict(self, parent: Node, node: Node) -> _Part:
        """Give a value that must not be nil."""
        part = self._part(node)
        if not part.nullable:
            return part
        checked = self._fails(parent, part, part.value.isNull(), f"{self._source(node)} is nil")
        return _Part(checked.value, checked.error, nullable=False)

    def _scalar(self, parent: Node, node: Node, kind: Kind) -> _Part:
        """Give a text, a truth value or a float that must not be nil."""
        part = self._strict(parent, node)
        if self._kind(node) != "any":
            return part
        value = variants.scalar(part.value, kind)
        found = self._fails(parent, part, value.isNull(), f"{self._source(node)} is no {_WANTED[kind]}")
        return _Part(value, found.error, nullable=False)

    def _number(self, parent: Node, node: Node, wanted: Kind) -> _Part:
        """Give a number as a BIGINT (wanted int) or a DOUBLE (wanted float)."""
        part = self._scalar(parent, node, "float")
        return self._as(parent, part, self._kind(node), wanted)

    def _as(self, parent: Node, part: _Part, kind: Kind, wanted: Kind) -> _Part:
        """Give a value as one of the kind that it may be joined with."""
        if kind == wanted or (wanted == "any" and kind in ("array", "map")):
            return part
        if kind == "nil":
            return _Part(F.lit(None).cast(COLUMN_TYPES[wanted]), part.error)
        if kind == "uint" and wanted == "int":
            value = part.value.try_cast("bigint")
            beyond = value.isNull() & part.value.isNotNull()
            return self._fails(parent, _Part(value, part.error, part.nullable), beyond, "a number is beyond 64 bits")
        if kind == "any" and wanted == "float":
            return part
        return _Part(part.value.cast(COLUMN_TYPES[wanted]), part.error, part.nullable)

    # Operators.

    def _unary(self, node: Unary) -> _Part:
        if node.operator == "not":
            part = self._scalar(node, node.operand, "bool")
            return _Part(~part.value, part.error, nullable=False)
        kind = self._kind(node)
        part = self._number(node, node.operand, kind)
        if node.operator == "+":
            return part
        if kind == "float":
            return _Part(-part.value, part.error, nullable=False)
        negated = F.try_subtract(F.lit(0).cast("bigint"), part.value)
        return self._fails(node, _Part(negated, part.error, nullable=False), negated.isNull(), _BEYOND)

    def _ternary(self, node: Ternary) -> _Part:
        condition = self._scalar(node, node.condition, "bool")
        kind = self._kind(node)
        then, otherwise = (
            self._as(node, self._part(side), self._kind(side), kind) for side in (node.then, node.otherwise)
        )
        error = None
        if then.error is not None or otherwise.error is not None:
            error = F.when(condition.value, _error(then)).otherwise(_error(otherwise))
        return _Part(
            F.when(condition.value, then.value).otherwise(otherwise.value),
            _first(condition.error, error),
            then.nullable or otherwise.nullable,
        )

    def _binary(self, node: Binary) -> _Part:
        match node.operator:
            case "and" | "or":
                return self._junction(node)
            case "??":
                return self._coalesce(node)
            case "==":
                return self._equal(node.left, node.right)
            case "!=":
                part = self._equal(node.left, node.right)
                return _Part(~part.value, part.error, nullable=False)
            case "in":
                return self._in(node)
            case "..":
                return self._range(node)
            case "<" | "<=" | ">" | ">=":
                return self._ordered(node)
            case "contains" | "startsWith" | "endsWith" | "matches":
                return self._text_test(node)
        return self._arithmetic(node)

    def _junction(self, node: Binary) -> _Part:
        left, right = (self._scalar(node, side, "bool") for side in (node.left, node.right))
        conjunction = node.operator == "and"
        looked_at = left.value if conjunction else ~left.value
        error = None if right.error is None else F.when(looked_at, right.error)
        value = left.value & right.value if conjunction else left.value | right.value
        return _Part(value, _first(left.error, error), nullable=False)

    def _coalesce(self, node: Binary) -> _Part:
        kind = self._kind(node)
        left, right = (self._as(node, self._part(side), self._kind(side), kind) for side in (node.left, node.right))
        error = None if right.error is None else F.when(left.value.isNull(), right.error)
        return _Part(F.coalesce(left.value, right.value), _first(left.error, error), right.nullable)

    def _equal(self, left: Node, right: Node) -> _Part:
        one, other = self._part(left), self._part(right)
        value = _same(one.value, self._kind(left), other.value, self._kind(right))
        return _Part(value, _first(one.error, other.error), nullable=False)

    def _ordered(self, node: Binary) -> _Part:
        kinds = {self._kind(node.left), self._kind(node.right)}
        wanted: Kind = "float" if kinds & NUMBERS else "string"
        left, right = (self._scalar(node, side, wanted) for side in (node.left, node.right))
        operators = {
            "<": left.value < right.value,
            "<=": left.value <= right.value,
            ">": left.value > right.value,
            ">=": left.value >= right.value,
        }
        return _Part(operators[node.operator], _first(left.error, right.error), nullable=False)

    def _text_test(self, node: Binary) -> _Part:
        left = self._scalar(node, node.left, "string")
        if node.operator == "matches":
            assert isinstance(node.right, Literal)
            pattern = F.lit(engine_pattern(str(node.right.value)))
            return _Part(F.call_function("glassflow_matches", left.value, pattern), left.error, nullable=False)
        right = self._scalar(node, node.right, "string")
        test = {"contains": F.contains, "startsWith": F.startswith, "endsWith": F.endswith}[node.operator]
        return _Part(test(left.value, right.value), _first(left.error, right.error), nullable=False)

    def _arithmetic(self, node: Binary) -> _Part:
        kind = self._kind(node)
        if kind in ("time", "duration"):
            return self._time_arithmetic(node)
        if kind == "string":
            left, right = (self._scalar(node, side, "string") for side in (node.left, node.right))
            return _Part(F.concat(left.value, right.value), _first(left.error, right.error), nullable=False)
        left, right = (self._number(node, side, kind) for side in (node.left, node.right))
        error = _first(left.error, right.error)
        match node.operator, kind:
            case "/", _:
                return self._or_problem(node, F.try_divide(left.value, right.value), error, "division by zero")
            case "%", _:
                return self._or_problem(node, F.try_mod(left.value, right.value), error, "division by zero")
            case "**", _:
                power = F.pow(left.value, right.value)
                return self._fails(node, _Part(power, error, nullable=False), F.isnan(power), "there is no such power")
            case operator, "int":
                whole = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[operator]
                return self._or_problem(node, whole(left.value, right.value), error, _BEYOND)
            case "+", _:
                return _Part(left.value + right.value, error, nullable=False)
            case "-", _:
                return _Part(left.value - right.value, error, nullable=False)
        return _Part(left.value * right.value, error, nullable=False)

    def _time_arithmetic(self, node: Binary) -> _Part:
        """Count in microseconds; what leaves the years 1 to 9999 is no time."""
        sides = [self._strict(node, side) for side in (node.left, node.right)]
        counts = [
            F.unix_micros(side.value) if self._kind(which) == "time" else side.value
            for side, which in zip(sides, (node.left, node.right), strict=True)
        ]
        error = _first(*(side.error for side in sides))
        operation = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[node.operator]
        found = operation(*counts)
        if self._kind(node) == "duration":
            return self._or_problem(node, found, error, _BEYOND)
        inside = F.coalesce(found.between(F.lit(_TIMES[0]), F.lit(_TIMES[1])), _FALSE())
        value = F.timestamp_micros(F.when(inside, found))
        return self._or_problem(node, value, error, "the result is no time of the years 1 to 9999")

    def _range(self, node: Binary) -> _Part:
        left, right = (self._number(node, side, "int") for side in (node.left, node.right))
        last = F.try_add(left.value, F.lit(_LONGEST_RANGE - 1).cast("bigint"))
        listed = F.when(right.value < left.value, F.array().cast("array<bigint>")).when(
            F.coalesce(right.value <= last, F.lit(1).cast("boolean")), F.sequence(left.value, right.value)
        )
        error = _first(left.error, right.error)
        return self._or_problem(node, listed, error, f"a range has at most {_LONGEST_RANGE:,} numbers")

    def _in(self, node: Binary) -> _Part:
        needle, kind = self._part(node.left), self._kind(node.left)
        if isinstance(node.right, ListLiteral):
            return self._in_list(needle, kind, node.right)
        if isinstance(node.right, Binary) and node.right.operator == ".." and kind in INTEGERS:
            return self._in_range(needle, node.right)
        haystack = self._part(node.right)
        element = ELEMENTS.get(self._kind(node.right))

        def is_needle(column: Column) -> Column:
            one = variants.without_null(column) if element == "any" else column
            return _same(one, element or "any", needle.value, kind)

        error = _first(needle.error, haystack.error)
        match self._kind(node.right):
            case "map":
                found = F.array_contains(F.map_keys(variants.entries(haystack.value)), needle.value)
            case "any":
                return self._in_unknown(node, haystack.value, needle.value, is_needle, error)
            case "array":
                found = F.exists(variants.elements(haystack.value), is_needle)
            case _:
                found = F.exists(haystack.value, is_needle)
        return _Part(F.coalesce(found, _FALSE()), error, nullable=False)

    def _in_unknown(
        self,
        node: Binary,
        haystack: Column,
        needle: Column,
        is_needle: Callable[[Column], Column],
        error: Column | None,
    ) -> _Part:
        """Look into what may be an array or an object; nothing is in nil."""
        kind = self._kind(node.left)
        name = variants.scalar(needle, "string") if kind == "any" else needle.cast("string")
        names = F.map_keys(variants.entries(haystack))
        named = F.coalesce(F.array_contains(names, name), _FALSE()) if kind in ("any", "string") else _FALSE()
        found = F.coalesce(F.exists(variants.elements(haystack), is_needle), F.when(names.isNotNull(), named))
        part = _Part(F.coalesce(found, _FALSE()), error, nullable=False)
        wrong = haystack.isNotNull() & found.isNull()
        return self._fails(node, part, wrong, f"{self._source(node.right)} is no array and no object")

    def _in_range(self, needle: _Part, listed: Binary) -> _Part:
        first, last = (self._number(listed, side, "int") for side in (listed.left, listed.right))
        inside = F.coalesce(needle.value.between(first.value, last.value), _FALSE())
        return _Part(inside, _first(needle.error, first.error, last.error), nullable=False)

    def _in_list(self, needle: _Part, kind: Kind, listed: ListLiteral) -> _Part:
        values = [item.value for item in listed.items if isinstance(item, Literal)]
        item_kinds = {self._kind(item) for item in listed.items}
        if len(values) == len(listed.items) and item_kinds == {kind} <= {"string", "int"}:
            return _Part(F.coalesce(needle.value.isin(values), _FALSE()), needle.error, nullable=False)
        items = [(self._part(item), self._kind(item)) for item in listed.items]
        tests = [_same(needle.value, kind, item.value, item_kind) for item, item_kind in items]
        error = _first(needle.error, *(item.error for item, _ in items))
        return _Part(reduce(lambda one, other: one | other, tests, _FALSE()), error, nullable=False)

    # Lists, elements, functions.

    def _list(self, items: tuple[Node, ...], kind: Kind) -> _Part:
        parts = [self._as(item, self._finite(item), self._kind(item), LISTS[kind]) for item in items]
        values = F.array(*(part.value for part in parts)).cast(COLUMN_TYPES[kind])
        return _Part(values, _first(*(part.error for part in parts)), nullable=False)

    def _map(self, names: tuple[str, ...], values: tuple[Node, ...]) -> _Part:
        if not names:
            return _Part(F.parse_json(F.lit("{}")), nullable=False)
        parts = [self._finite(value) for value in values]
        found = F.to_variant_object(
            F.struct(*(part.value.alias(name) for part, name in zip(parts, names, strict=True)))
        )
        return _Part(found, _first(*(part.error for part in parts)), nullable=False)

    def _slice(self, node: Slice) -> _Part:
        bounds = [None if bound is None else self._number(node, bound, "int") for bound in (node.start, node.end)]
        errors = [bound.error for bound in bounds if bound is not None]
        start, end = (None if bound is None else bound.value for bound in bounds)
        if self._kind(node.base) == "string":
            text = self._strict(node, node.base)
            return _Part(part_of_text(text.value, start, end), _first(text.error, *errors), nullable=False)
        listed = self._elements(node, node.base)
        return _Part(part_of_list(listed.value, start, end), _first(listed.error, *errors), nullable=False)

    def _elements(self, parent: Node, node: Node) -> _Part:
        """Give what a list or array that must not be nil holds: ARRAY of the elements' kind."""
        part = self._strict(parent, node)
        kind = self._kind(node)
        if kind in LISTS:
            return part
        elements = _Part(variants.elements(part.value), part.error, nullable=False)
        if kind == "array":
            return elements
        return self._fails(parent, elements, elements.value.isNull(), f"{self._source(node)} is no array")

    def _ask(self, node: Call) -> _Part:
        listed, predicate = node.arguments
        assert isinstance(predicate, Predicate)
        elements = self._elements(node, listed)

        def answer(element: Column) -> tuple[Column, Column | None]:
            self._pointers.append(element)
            part = self._answer(node, predicate.body)
            self._pointers.pop()
            return part.value, part.error

        asked: Asked = ask(node.function, elements.value, answer)
        value, error = asked.value, _first(elements.error, asked.error)
        if node.function == "sum":
            added = BUILTIN_BUILDERS["sum"]([Operand(value, list_kind(self._kind(node)))])
            value = added.value
            error = _first(error, None if added.problem is None else self._told(node, added.problem))
        elif PREDICATES[node.function] == "element" and self._kind(node) == "any":
            value = variants.without_null(value)
        return _Part(value, error, nullable=node.function.startswith("find"))

    def _answer(self, node: Call, body: Node) -> _Part:
        match node.function:
            case "map":
                return self._as(body, self._finite(body), self._kind(body), LISTS[self._kind(node)])
            case "sum":
                return self._number(node, body, self._kind(node))
        return self._scalar(node, body, "bool")

    def _inside(self, node: Node) -> _Part:
        """Give what lies inside an object or array, a JSON null as it is."""
        return self._stepwise("inside", node, self._look_inside)

    def _look_inside(self, node: Node) -> _Part:
        match node:
            case Member(name=name):
                return self._entry(node, _Part(F.lit(name), nullable=False))
            case Index(index=index) if self._kind(index) == "string":
                return self._entry(node, self._key(node))
            case Index():
                return self._element(node)
            case Pointer():
                return _Part(self._pointers[-1])
        return self._part(node)

    def _key(self, node: Index) -> _Part:
        """Give an index or name; there is no element nil, which only get() takes for an answer."""
        return self._part(node.index) if node.lenient else self._strict(node, node.index)

    def _element(self, node: Index) -> _Part:
        base, sound = self._base(node)
        index = self._as(node, self._key(node), self._kind(node.index), "int")
        elements = base.value if self._kind(node.base) in LISTS else variants.elements(base.value)
        size = F.size(elements)
        position = F.when(index.value < 0, index.value + size).otherwise(index.value).try_cast("int")
        part = replace(base, value=F.get(elements, position), error=_first(base.error, index.error), nullable=True)
        if node.lenient:
            return part
        part = self._fails(node, part, sound & elements.isNull(), f"{self._source(node.base)} is no array")
        outside = sound & F.coalesce((position < 0) | (position >= size), F.lit(1).cast("boolean"))
        return self._fails(node, part, outside, "the index is out of range")

    def _entry(self, node: Member | Index, key: _Part) -> _Part:
        base, sound = self._base(node)
        entries = variants.entries(base.value)
        found = F.try_element_at(entries, key.value)
        part = replace(base, value=found, error=_first(base.error, key.error), nullable=True)
        if self._kind(node.base) == "map" or (isinstance(node, Index) and node.lenient):
            return part
        return self._fails(node, part, sound & entries.isNull(), f"{self._source(node.base)} is no object")

    def _base(self, node: Member | Index) -> tuple[_Part, Column]:
        """Give what is looked into, and whether it is there."""
        part = self._inside(node.base)
        nothing = part.value.isNull()
        if self._kind(node.base) == "any":
            nothing |= F.is_variant_null(part.value)
        if isinstance(node, Index) and node.lenient:
            return replace(part, ended=None), ~nothing
        if node.optional:
            return replace(part, ended=nothing if part.ended is None else part.ended | nothing), ~nothing
        if not part.nullable:
            return part, ~nothing
        missing = nothing if part.ended is None else nothing & ~part.ended
        return self._fails(node, part, missing, f"{self._source(node.base)} is nil"), ~nothing

    def _call(self, node: Call) -> _Part:
        if any(isinstance(argument, Predicate) for argument in node.arguments):
            return self._ask(node)
        if node.function == "now":
            return _Part(self._columns[BATCH_TIME], nullable=False)
        signature = self._checked.functions[node.function]
        arguments = node.arguments
        if node.function == "waterfall" and isinstance(arguments[0], ListLiteral):
            arguments = arguments[0].items
        operands, errors = [], []
        for position, argument in enumerate(arguments):
            parameter = signature.parameters[min(position, len(signature.parameters) - 1)]
            part, kind = self._argument(node, argument, parameter, tolerant=signature.tolerant)
            literal = argument.value if isinstance(argument, Literal) and isinstance(argument.value, str) else None
            operands.append(Operand(part.value, kind, literal))
            errors.append(part.error)
        builders = HELPER_BUILDERS if signature.tolerant else BUILTIN_BUILDERS
        answer = builders[node.function](operands)
        problem = None if answer.problem is None else self._told(node, answer.problem)
        return _Part(answer.value, _first(*errors, problem), nullable=answer.nullable)

    def _argument(self, call: Call, node: Node, parameter: Parameter, *, tolerant: bool) -> tuple[_Part, Kind]:
        part = self._part(node) if tolerant else self._strict(call, node)
        kind = self._kind(node)
        match parameter:
            case "text" if not tolerant:
                return self._scalar(call, node, "string"), "string"
            case "text":
                return _Part(variants.scalar(part.value, "string") if kind == "any" else part.value, part.error), kind
            case "numbers" if kind == "any" and len(call.arguments) == 1:
                listed = F.coalesce(variants.elements(part.value), F.array(part.value))
                return _Part(listed, part.error, nullable=False), "values"
            case "number" | "numbers" if kind not in LISTS and kind != "array":
                wanted: Kind = "int" if self._kind(call) == "int" else "float"
                return self._number(call, node, wanted), wanted
            case "given" if kind in ELEMENTS and kind != "any":
                return (part, kind) if kind in LISTS else (_Part(variants.elements(part.value), part.error), "values")
            case "list" | "number list" | "numbers":
                return self._elements(call, node), kind if kind in LISTS else "values"
            case "texts" if kind in ("array", "any", "values"):
                elements = part.value if kind == "values" else variants.elements(part.value)
                return _Part(F.transform(elements, variants.as_text), part.error), "strings"
            case "map":
                return _Part(variants.entries(part.value), part.error), "map"
        return part, kind

    # Errors.

    def _or_problem(self, node: Node, value: Column, error: Column | None, problem: str) -> _Part:
        """Say the problem where a value that cannot be nil is NULL all the same."""
        return self._fails(node, _Part(value, error, nullable=False), value.isNull(), problem)

    def _fails(self, node: Node, part: _Part, condition: Column, problem: str) -> _Part:
        error = F.when(condition, F.lit(f"{self._source(node)}: {problem}"))
        return replace(part, error=_first(part.error, error))

    def _told(self, node: Node, problem: Column) -> Column:
        return F.concat(F.lit(f"{self._source(node)}: "), problem)

    def _source(self, node: Node) -> str:
        return source(self._checked.text, node)


# The microseconds of the years 1 to 9999.
_TIMES = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# expr's own limit.
_LONGEST_RANGE = 1_000_000
_BEYOND = "the result is beyond 64 bits"


def _field(column: Column, kind: Kind) -> Column:
    if kind not in _JSON_KINDS:
        return column
    value = variants.parsed(column)
    return variants.without_null(value) if kind == "any" else value


def _FALSE() -> Column:  # noqa: N802 - a constant, but columns need a session
    return F.lit(0).cast("boolean")


def _error(part: _Part) -> Column:
    return F.lit(None).cast("string") if part.error is None else part.error


def _first(*errors: Column | None) -> Column | None:
    found = [error for error in errors if error is not None]
    return F.coalesce(*found) if len(found) > 1 else found[0] if found else None


def _same(left: Column, left_kind: Kind, right: Column, right_kind: Kind) -> Column:
    """Whether two values are the same, nil being the same as nil only: never NULL."""
    if "nil" in (left_kind, right_kind):
        return left.isNull() & right.isNull()
    if "any" not in (left_kind, right_kind):
        return left.eqNullSafe(right)
    if left_kind == right_kind:
        test = variants.same(left, right)
    elif left_kind == "any":
        test = variants.scalar(left, right_kind) == _plain_number(right, right_kind)
    else:
        test = variants.scalar(right, left_kind) == _plain_number(left, left_kind)
    nothing = left.isNull() | right.isNull()
    return F.when(nothing, left.isNull() & right.isNull()).otherwise(F.coalesce(test, _FALSE()))


def _plain_number(value: Column, kind: Kind) -> Column:
    return value.cast("double") if kind in INTEGERS else value
