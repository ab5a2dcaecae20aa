"""Compile a checked expression to two Spark columns: its value, and its error.

The error column holds what expr would raise for a record (arithmetic on nil, an index out of range), so that this one
record becomes a dead letter and the batch continues. Like expr, `and`, `or`, `??` and `? :` evaluate their right side
only where it counts. No Spark function is used that raises for a value, and none that runs Python.

Inside this module the value of a node is undefined where its error is set; only `compile_expression` makes it NULL.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions import syntax
from glassflow_dagster.definition.expressions.check import INTEGERS, NUMBERS, Checked, list_kind, source
from glassflow_dagster.definition.expressions.patterns import engine_pattern
from glassflow_dagster.definition.expressions.signatures import ELEMENTS, LISTS, PREDICATES, Kind, Parameter
from glassflow_dagster.stream.expressions import variants
from glassflow_dagster.stream.expressions.functions import (
    BUILTIN_BUILDERS,
    HELPER_BUILDERS,
    METHOD_BUILDERS,
    NOT_FINITE,
    Operand,
    is_not_finite,
)
from glassflow_dagster.stream.expressions.lists import apply_predicate, slice_list, slice_text
from glassflow_dagster.stream.expressions.steps import Steps

# The key in `columns` of the result of now(); the parentheses keep it apart from every field name.
BATCH_TIME = "now()"

# Expression kind -> Spark type of its column.
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

# Kinds of fields whose column is JSON text.
_JSON_KINDS: frozenset[Kind] = frozenset({"array", "map", "any"})

# The step that reads no other one.
_FIRST_STEP = 1

_KIND_WORDS: Mapping[Kind, str] = {"string": "string", "float": "number", "bool": "bool"}


@dataclass(frozen=True)
class Compiled:
    """The two columns of an expression. value: COLUMN_TYPES[kind], NULL for nil; error: STRING, NULL without error."""

    value: Column
    error: Column
    kind: Kind


@dataclass(frozen=True)
class _NodeColumns:
    """The columns of one node of the expression tree.

    value: COLUMN_TYPES of the node's kind. error: STRING, or None when the node cannot fail. nullable False: the node
    is never nil. chain_is_nil: BOOLEAN, true where a `?.` earlier in a chain such as `a?.b.c` found nil, so that the
    rest of the chain is nil too, without an error; None when the chain has no `?.`.
    """

    value: Column
    error: Column | None = None
    nullable: bool = True
    chain_is_nil: Column | None = None


def compile_expression(checked: Checked, columns: Mapping[str, Column], steps: Steps) -> Compiled:
    """Compile a checked expression; evaluate the result on a frame that `steps.before` has extended.

    columns: the column of each declared field: STRING, BIGINT, DECIMAL(20,0), DOUBLE or BOOLEAN by its kind; arrays,
    objects and values of any kind as their JSON text. columns[BATCH_TIME] is the result of now(): the TIMESTAMP of the
    micro-batch, so that a repeated batch has the same values; needed only when an expression calls now(). The
    session's time zone must be UTC.
    """
    compiled = _Compiler(checked, columns, steps).compile_root()
    error = F.lit(None).cast("string") if compiled.error is None else compiled.error
    value = compiled.value if compiled.error is None else F.when(compiled.error.isNull(), compiled.value)
    return Compiled(value, error, checked.kind)


class _Compiler:
    """Compiles the nodes of one expression, each to its `_NodeColumns`."""

    def __init__(self, checked: Checked, columns: Mapping[str, Column], steps: Steps) -> None:
        self._checked = checked
        self._columns = columns
        self._steps = steps
        # The element column that `#` stands for in each enclosing predicate, the innermost last.
        self._pointers: list[Column] = []
        # (mode, node) -> the compiled node and the step (from 1) that computes it; not for nodes inside a predicate.
        self._compiled: dict[tuple[str, syntax.Node], tuple[_NodeColumns, int]] = {}
        # JSON field -> the column of what its text says.
        self._parsed: dict[str, Column] = {}
        # The highest step that the node being compiled reads from so far; 0 for none.
        self._depth = 0

    def compile_root(self) -> _NodeColumns:
        """Compile the whole expression; NaN and infinity are errors, as in GlassFlow, but in a field of the record."""
        root = self._checked.root
        return self._compile(root) if isinstance(root, syntax.Field) else self._compile_finite(root)

    def _compile_finite(self, node: syntax.Node) -> _NodeColumns:
        """Compile a node; NaN and infinity, which JSON cannot write, are errors."""
        compiled = self._compile(node)
        return self._finite(node, compiled) if self._kind(node) == "float" else compiled

    def _finite(self, node: syntax.Node, compiled: _NodeColumns) -> _NodeColumns:
        if isinstance(node, syntax.Literal):
            return compiled
        return self._with_error_where(node, compiled, is_not_finite(compiled.value), NOT_FINITE)

    def _kind(self, node: syntax.Node) -> Kind:
        return self._checked.kinds[node]

    def _compile(self, node: syntax.Node) -> _NodeColumns:
        """Compile a node; a JSON null that it reads is SQL NULL."""
        return self._compile_once("value", node, self._compile_node)

    def _compile_once(
        self, mode: str, node: syntax.Node, compile_node: Callable[[syntax.Node], _NodeColumns]
    ) -> _NodeColumns:
        """Compile a node once per mode ("value" or "json"), and return references to the columns of its step.

        A parent names its operands' columns several times, so each node is computed by a step (`steps.py`): one step
        after the latest step that it reads from. Inside a predicate the columns depend on an array element, which no
        step can compute: there the node is compiled in place. So are literals and plain fields, which cost nothing.
        """
        if self._pointers or isinstance(node, syntax.Literal) or self._is_plain_field(node):
            return compile_node(node)
        if (mode, node) not in self._compiled:
            outer_depth, self._depth = self._depth, 0
            compiled = compile_node(node)
            step = self._depth + 1
            self._compiled[mode, node] = self._as_step_columns(compiled, step), step
            self._depth = outer_depth
        compiled, step = self._compiled[mode, node]
        self._depth = max(self._depth, step)
        return compiled

    def _is_plain_field(self, node: syntax.Node) -> bool:
        return isinstance(node, syntax.Field) and self._kind(node) not in _JSON_KINDS

    def _as_step_columns(self, compiled: _NodeColumns, step: int) -> _NodeColumns:
        """Register the columns with a step, which computes them; return references to them. None stays None."""
        error, chain_is_nil = (
            column if column is None else self._steps.take(column, step)
            for column in (compiled.error, compiled.chain_is_nil)
        )
        return replace(compiled, value=self._steps.take(compiled.value, step), error=error, chain_is_nil=chain_is_nil)

    def _compile_node(self, node: syntax.Node) -> _NodeColumns:
        """Compile a node by its type, without a step of its own; to be called by `_compile_once` only."""
        match node:
            case syntax.Literal(value=value):
                return _NodeColumns(F.lit(value).cast(COLUMN_TYPES[self._kind(node)]), nullable=value is None)
            case syntax.Field(name=name):
                return _NodeColumns(self._columns[name]) if self._is_plain_field(node) else self._json_field(node)
            case syntax.ListLiteral(items=items):
                return self._list(items, self._kind(node))
            case syntax.MapLiteral(names=names, values=values):
                return self._map(names, values)
            case syntax.Slice():
                return self._slice(node)
            case syntax.Member() | syntax.Index() | syntax.Pointer():
                compiled = self._compile_json(node)
                if self._kind(node) != "any":
                    return compiled
                return _NodeColumns(variants.without_null(compiled.value), compiled.error)
            case syntax.Method(base=base, name=name):
                compiled = self._not_nil(node, base)
                result = METHOD_BUILDERS[self._kind(base)][name](compiled.value)
                return _NodeColumns(result.cast(COLUMN_TYPES[self._kind(node)]), compiled.error, nullable=False)
            case syntax.Unary():
                return self._unary(node)
            case syntax.Ternary():
                return self._ternary(node)
            case syntax.Binary():
                return self._binary(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Name() | syntax.Let() | syntax.Predicate():
                raise AssertionError(f"the checker let {self._source(node)!r} through")

    def _json_field(self, field: syntax.Field) -> _NodeColumns:
        """Parse a field that comes as JSON text to a VARIANT; an error where no VARIANT holds just what the text says.

        In a step of its own, also inside a predicate, so that a record's text is parsed once.
        """
        name = field.name
        if name not in self._parsed:
            self._parsed[name] = self._steps.take(variants.parsed(self._columns[name]), _FIRST_STEP)
        self._depth = max(self._depth, _FIRST_STEP)
        parsed = self._parsed[name]
        value = parsed["value"]
        return _NodeColumns(
            variants.without_null(value) if self._kind(field) == "any" else value,
            self._with_source(field, parsed["problem"]),
        )

    # Operands: each converted to the type that its operator takes, with an error where the record holds another type.
    # `parent` is the node that the error message quotes.

    def _not_nil(self, parent: syntax.Node, node: syntax.Node) -> _NodeColumns:
        """Compile an operand; nil is an error."""
        compiled = self._compile(node)
        if not compiled.nullable:
            return compiled
        checked = self._with_error_where(parent, compiled, compiled.value.isNull(), f"{self._source(node)} is nil")
        return _NodeColumns(checked.value, checked.error, nullable=False)

    def _scalar(self, parent: syntax.Node, node: syntax.Node, kind: Kind) -> _NodeColumns:
        """Compile an operand of kind string, bool or float; nil, and a JSON value of another type, are errors.

        An operand that is an integer stays one, although the kind is "float".
        """
        compiled = self._not_nil(parent, node)
        if self._kind(node) != "any":
            return compiled
        value = variants.scalar(compiled.value, kind)
        checked = self._with_error_where(
            parent, compiled, value.isNull(), f"{self._source(node)} is not a {_KIND_WORDS[kind]}"
        )
        return _NodeColumns(value, checked.error, nullable=False)

    def _number(self, parent: syntax.Node, node: syntax.Node, wanted: Kind) -> _NodeColumns:
        """Compile a number as BIGINT (wanted "int") or DOUBLE (wanted "float"); nil and overflow are errors.

        A JSON value is read as DOUBLE, and any other type than a number is an error.
        """
        # "float" is for JSON values only: an integer stays one, so that `_converted` can check its size.
        compiled = self._scalar(parent, node, "float")
        return self._converted(parent, compiled, self._kind(node), wanted)

    def _converted(self, parent: syntax.Node, compiled: _NodeColumns, kind: Kind, wanted: Kind) -> _NodeColumns:
        """Cast a value from its kind to the wanted one.

        A UINT64 that a BIGINT cannot hold is an error, and so is NaN or infinity as a value in JSON.
        Arrays and objects are values of kind "any" already, and nil becomes NULL of the wanted type.
        """
        if kind == wanted or (wanted == "any" and kind in ("array", "map")):
            return compiled
        if kind == "nil":
            return _NodeColumns(F.lit(None).cast(COLUMN_TYPES[wanted]), compiled.error)
        if kind == "uint" and wanted == "int":
            value = compiled.value.try_cast("bigint")
            overflows = value.isNull() & compiled.value.isNotNull()
            return self._with_error_where(
                parent, _NodeColumns(value, compiled.error, compiled.nullable), overflows, "a number exceeds 64 bits"
            )
        if kind == "any" and wanted == "float":
            return compiled  # _scalar has made it a DOUBLE
        if kind == "float" and wanted == "any":
            compiled = self._finite(parent, compiled)
        return _NodeColumns(compiled.value.cast(COLUMN_TYPES[wanted]), compiled.error, compiled.nullable)

    # Operators.

    def _unary(self, node: syntax.Unary) -> _NodeColumns:
        """Compile `not`, `-` and `+`; nil, and overflow of `-`, are errors."""
        if node.operator == "not":
            compiled = self._scalar(node, node.operand, "bool")
            return _NodeColumns(~compiled.value, compiled.error, nullable=False)
        kind = self._kind(node)
        compiled = self._number(node, node.operand, kind)
        if node.operator == "+":
            return compiled
        if kind == "float":
            return _NodeColumns(-compiled.value, compiled.error, nullable=False)
        # As 0 - value: Spark has no negation that returns NULL on overflow.
        negated = F.try_subtract(F.lit(0).cast("bigint"), compiled.value)
        return self._with_error_where(
            node, _NodeColumns(negated, compiled.error, nullable=False), negated.isNull(), _OVERFLOW
        )

    def _ternary(self, node: syntax.Ternary) -> _NodeColumns:
        """Compile `condition ? then : otherwise`; only the chosen branch can fail."""
        condition = self._scalar(node, node.condition, "bool")
        kind = self._kind(node)
        then, otherwise = (
            self._converted(node, self._compile(side), self._kind(side), kind) for side in (node.then, node.otherwise)
        )
        error = None
        if then.error is not None or otherwise.error is not None:
            error = F.when(condition.value, _error_or_null(then)).otherwise(_error_or_null(otherwise))
        return _NodeColumns(
            F.when(condition.value, then.value).otherwise(otherwise.value),
            _first_error(condition.error, error),
            then.nullable or otherwise.nullable,
        )

    def _binary(self, node: syntax.Binary) -> _NodeColumns:
        """Compile an operation with two operands by its operator."""
        match node.operator:
            case "and" | "or":
                return self._and_or(node)
            case "??":
                return self._coalesce(node)
            case "==":
                return self._equal(node.left, node.right)
            case "!=":
                compiled = self._equal(node.left, node.right)
                return _NodeColumns(~compiled.value, compiled.error, nullable=False)
            case "in":
                return self._in(node)
            case "..":
                return self._range(node)
            case "<" | "<=" | ">" | ">=":
                return self._order_comparison(node)
            case "contains" | "startsWith" | "endsWith" | "matches":
                return self._text_test(node)
        return self._arithmetic(node)

    def _and_or(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `and` and `or`; the right side's error counts only where the left side does not decide."""
        left, right = (self._scalar(node, side, "bool") for side in (node.left, node.right))
        conjunction = node.operator == "and"
        right_counts = left.value if conjunction else ~left.value
        right_error = None if right.error is None else F.when(right_counts, right.error)
        value = left.value & right.value if conjunction else left.value | right.value
        return _NodeColumns(value, _first_error(left.error, right_error), nullable=False)

    def _coalesce(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `left ?? right`; the right side's error counts only where the left side is nil."""
        kind = self._kind(node)
        left, right = (
            self._converted(node, self._compile(side), self._kind(side), kind) for side in (node.left, node.right)
        )
        right_error = None if right.error is None else F.when(left.value.isNull(), right.error)
        return _NodeColumns(F.coalesce(left.value, right.value), _first_error(left.error, right_error), right.nullable)

    def _equal(self, left: syntax.Node, right: syntax.Node) -> _NodeColumns:
        """Compile `left == right`; nil equals only nil."""
        left_columns, right_columns = self._compile(left), self._compile(right)
        value = _is_equal(left_columns.value, self._kind(left), right_columns.value, self._kind(right))
        return _NodeColumns(value, _first_error(left_columns.error, right_columns.error), nullable=False)

    def _order_comparison(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `< <= > >=` of two numbers, texts or times; nil is an error."""
        kinds = {self._kind(node.left), self._kind(node.right)}
        # The type to read JSON values as; a value of any other kind, such as a time, is compared as it is.
        json_kind: Kind = "float" if kinds & NUMBERS else "string"
        left, right = (self._scalar(node, side, json_kind) for side in (node.left, node.right))
        operators = {
            "<": left.value < right.value,
            "<=": left.value <= right.value,
            ">": left.value > right.value,
            ">=": left.value >= right.value,
        }
        return _NodeColumns(operators[node.operator], _first_error(left.error, right.error), nullable=False)

    def _text_test(self, node: syntax.Binary) -> _NodeColumns:
        """Compile contains, startsWith, endsWith and matches of two texts; `matches` runs Go's regular expressions."""
        left = self._scalar(node, node.left, "string")
        if node.operator == "matches":
            assert isinstance(node.right, syntax.Literal)
            pattern = F.lit(engine_pattern(str(node.right.value)))
            return _NodeColumns(F.call_function("glassflow_matches", left.value, pattern), left.error, nullable=False)
        right = self._scalar(node, node.right, "string")
        test = {"contains": F.contains, "startsWith": F.startswith, "endsWith": F.endswith}[node.operator]
        return _NodeColumns(test(left.value, right.value), _first_error(left.error, right.error), nullable=False)

    def _arithmetic(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `+ - * / % **` by the result's kind: text, time, integer (overflow is an error) or float."""
        kind = self._kind(node)
        if kind in ("time", "duration"):
            return self._time_arithmetic(node)
        if kind == "string":
            left, right = (self._scalar(node, side, "string") for side in (node.left, node.right))
            return _NodeColumns(
                F.concat(left.value, right.value), _first_error(left.error, right.error), nullable=False
            )
        left, right = (self._number(node, side, kind) for side in (node.left, node.right))
        error = _first_error(left.error, right.error)
        match node.operator, kind:
            case "/", _:
                return self._with_error_where_null(
                    node, F.try_divide(left.value, right.value), error, "division by zero"
                )
            case "%", _:
                return self._with_error_where_null(node, F.try_mod(left.value, right.value), error, "division by zero")
            case "**", _:
                power = F.pow(left.value, right.value)
                return self._with_error_where(
                    node, _NodeColumns(power, error, nullable=False), F.isnan(power), "the power is undefined"
                )
            case operator, "int":
                operation = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[operator]
                return self._with_error_where_null(node, operation(left.value, right.value), error, _OVERFLOW)
            case "+", _:
                return _NodeColumns(left.value + right.value, error, nullable=False)
            case "-", _:
                return _NodeColumns(left.value - right.value, error, nullable=False)
        return _NodeColumns(left.value * right.value, error, nullable=False)

    def _time_arithmetic(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `+`, `-`, `*` of times and durations, and of an integer and a duration, in microseconds.

        Overflow of a duration, and a time outside the years 1 to 9999, are errors.
        """
        sides = [self._not_nil(node, side) for side in (node.left, node.right)]
        operands = [
            F.unix_micros(side.value) if self._kind(side_node) == "time" else side.value
            for side, side_node in zip(sides, (node.left, node.right), strict=True)
        ]
        error = _first_error(*(side.error for side in sides))
        operation = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[node.operator]
        micros = operation(*operands)
        if self._kind(node) == "duration":
            return self._with_error_where_null(node, micros, error, _OVERFLOW)
        is_timestamp = F.coalesce(micros.between(F.lit(_FIRST_MICROSECOND), F.lit(_LAST_MICROSECOND)), _FALSE())
        value = F.timestamp_micros(F.when(is_timestamp, micros))
        return self._with_error_where_null(node, value, error, "the result is not a time in the years 1 to 9999")

    def _range(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `first..last`: ARRAY<BIGINT>, both ends included; empty where last < first."""
        left, right = (self._number(node, side, "int") for side in (node.left, node.right))
        # NULL where it overflows: then no BIGINT is too large for the range.
        greatest_end = F.try_add(left.value, F.lit(_LONGEST_RANGE - 1).cast("bigint"))
        numbers = F.when(right.value < left.value, F.array().cast("array<bigint>")).when(
            F.coalesce(right.value <= greatest_end, _TRUE()), F.sequence(left.value, right.value)
        )
        error = _first_error(left.error, right.error)
        return self._with_error_where_null(node, numbers, error, f"a range has at most {_LONGEST_RANGE:,} numbers")

    def _in(self, node: syntax.Binary) -> _NodeColumns:
        """Compile `needle in haystack`: an element of a list or array, or a name in an object; never nil."""
        needle, kind = self._compile(node.left), self._kind(node.left)
        if isinstance(node.right, syntax.ListLiteral):
            return self._in_list(needle, kind, node.right)
        if isinstance(node.right, syntax.Binary) and node.right.operator == ".." and kind in INTEGERS:
            return self._in_range(needle, node.right)
        haystack = self._compile(node.right)
        # None for an object, which has names instead: there `is_needle` is not used.
        element_kind = ELEMENTS.get(self._kind(node.right))

        def is_needle(column: Column) -> Column:
            value = variants.without_null(column) if element_kind == "any" else column
            return _is_equal(value, element_kind or "any", needle.value, kind)

        error = _first_error(needle.error, haystack.error)
        match self._kind(node.right):
            case "map":
                is_contained = F.array_contains(F.map_keys(variants.entries(haystack.value)), needle.value)
            case "any":
                return self._in_any(node, haystack.value, needle.value, is_needle, error)
            case "array":
                is_contained = F.exists(variants.elements(haystack.value), is_needle)
            case _:
                is_contained = F.exists(haystack.value, is_needle)
        # NULL where the haystack or, in an object, the needle is nil: not contained.
        return _NodeColumns(F.coalesce(is_contained, _FALSE()), error, nullable=False)

    def _in_any(
        self,
        node: syntax.Binary,
        haystack: Column,
        needle: Column,
        is_needle: Callable[[Column], Column],
        error: Column | None,
    ) -> _NodeColumns:
        """Compile `in` where only the record tells whether the haystack is an array or an object.

        In nil nothing is found; any other value is an error. is_needle: tests one element of the array.
        """
        kind = self._kind(node.left)
        name = variants.scalar(needle, "string") if kind == "any" else needle.cast("string")
        names = F.map_keys(variants.entries(haystack))
        in_names = F.coalesce(F.array_contains(names, name), _FALSE()) if kind in ("any", "string") else _FALSE()
        # NULL for what is neither an array nor an object.
        is_contained = F.coalesce(F.exists(variants.elements(haystack), is_needle), F.when(names.isNotNull(), in_names))
        compiled = _NodeColumns(F.coalesce(is_contained, _FALSE()), error, nullable=False)
        not_a_container = haystack.isNotNull() & is_contained.isNull()
        return self._with_error_where(
            node, compiled, not_a_container, f"{self._source(node.right)} is neither an array nor an object"
        )

    def _in_range(self, needle: _NodeColumns, number_range: syntax.Binary) -> _NodeColumns:
        """Compile `needle in first..last` by its ends, without the list of numbers."""
        first, last = (self._number(number_range, side, "int") for side in (number_range.left, number_range.right))
        # NULL where the needle is nil.
        is_contained = F.coalesce(needle.value.between(first.value, last.value), _FALSE())
        return _NodeColumns(is_contained, _first_error(needle.error, first.error, last.error), nullable=False)

    def _in_list(self, needle: _NodeColumns, kind: Kind, list_literal: syntax.ListLiteral) -> _NodeColumns:
        """Compile `needle in [a, b]`.

        SQL's IN when all items are literals of the needle's kind, text or integer; else one test of equality per item.
        """
        literals = [item.value for item in list_literal.items if isinstance(item, syntax.Literal)]
        item_kinds = {self._kind(item) for item in list_literal.items}
        if len(literals) == len(list_literal.items) and item_kinds == {kind} <= {"string", "int"}:
            return _NodeColumns(F.coalesce(needle.value.isin(literals), _FALSE()), needle.error, nullable=False)
        items = [(self._compile(item), self._kind(item)) for item in list_literal.items]
        tests = [_is_equal(needle.value, kind, item.value, item_kind) for item, item_kind in items]
        error = _first_error(needle.error, *(item.error for item, _ in items))
        return _NodeColumns(reduce(lambda left, right: left | right, tests, _FALSE()), error, nullable=False)

    # Lists, elements, functions.

    def _list(self, items: tuple[syntax.Node, ...], kind: Kind) -> _NodeColumns:
        """Compile `[a, b]` as an ARRAY of the list's element kind."""
        elements = [self._converted(item, self._compile_finite(item), self._kind(item), LISTS[kind]) for item in items]
        values = F.array(*(element.value for element in elements)).cast(COLUMN_TYPES[kind])
        return _NodeColumns(values, _first_error(*(element.error for element in elements)), nullable=False)

    def _map(self, names: tuple[str, ...], values: tuple[syntax.Node, ...]) -> _NodeColumns:
        """Compile `{a: 1}` as a VARIANT object."""
        if not names:
            return _NodeColumns(F.parse_json(F.lit("{}")), nullable=False)
        entries = [self._compile_finite(value) for value in values]
        variant = F.to_variant_object(
            F.struct(*(entry.value.alias(name) for entry, name in zip(entries, names, strict=True)))
        )
        return _NodeColumns(variant, _first_error(*(entry.error for entry in entries)), nullable=False)

    def _slice(self, node: syntax.Slice) -> _NodeColumns:
        """Compile `base[start:end]` of a text or a list; nil as base or bound is an error."""
        # None: the slice has no such bound.
        bounds = [None if bound is None else self._number(node, bound, "int") for bound in (node.start, node.end)]
        errors = [bound.error for bound in bounds if bound is not None]
        start, end = (None if bound is None else bound.value for bound in bounds)
        if self._kind(node.base) == "string":
            text = self._not_nil(node, node.base)
            return _NodeColumns(slice_text(text.value, start, end), _first_error(text.error, *errors), nullable=False)
        elements = self._elements(node, node.base)
        return _NodeColumns(
            slice_list(elements.value, start, end), _first_error(elements.error, *errors), nullable=False
        )

    def _elements(self, parent: syntax.Node, node: syntax.Node) -> _NodeColumns:
        """Compile a list or array as an ARRAY of its element kind; nil, and JSON of another type, are errors."""
        compiled = self._not_nil(parent, node)
        kind = self._kind(node)
        if kind in LISTS:
            return compiled
        elements = _NodeColumns(variants.elements(compiled.value), compiled.error, nullable=False)
        if kind == "array":
            return elements
        return self._with_error_where(
            parent, elements, elements.value.isNull(), f"{self._source(node)} is not an array"
        )

    def _predicate_call(self, node: syntax.Call) -> _NodeColumns:
        """Compile any(), filter() and the other functions that evaluate a predicate for every element of a list.

        `_pointers` is the stack of the elements that `#` stands for, the innermost predicate's last.
        """
        list_node, predicate = node.arguments
        assert isinstance(predicate, syntax.Predicate)
        elements = self._elements(node, list_node)

        def evaluate(element: Column) -> tuple[Column, Column | None]:
            self._pointers.append(element)
            body = self._predicate_body(node, predicate.body)
            self._pointers.pop()
            return body.value, body.error

        result = apply_predicate(node.function, elements.value, evaluate)
        value, error = result.value, _first_error(elements.error, result.error)
        if node.function == "sum":
            # The result is the list of numbers to add up.
            total = BUILTIN_BUILDERS["sum"]([Operand(value, list_kind(self._kind(node)))])
            value = total.value
            error = _first_error(error, None if total.problem is None else self._with_source(node, total.problem))
        elif PREDICATES[node.function] == "element" and self._kind(node) == "any":
            # find() and findLast() return an element as it is: one that is JSON's null is nil, which is SQL NULL here.
            value = variants.without_null(value)
        # find() and its variants return nil where the predicate is true for no element.
        return _NodeColumns(value, error, nullable=node.function.startswith("find"))

    def _predicate_body(self, node: syntax.Call, body: syntax.Node) -> _NodeColumns:
        """Compile a predicate's body to what its function takes: map() any value, sum() a number, any other a bool."""
        match node.function:
            case "map":
                return self._converted(body, self._compile_finite(body), self._kind(body), LISTS[self._kind(node)])
            case "sum":
                return self._number(node, body, self._kind(node))
        return self._scalar(node, body, "bool")

    def _compile_json(self, node: syntax.Node) -> _NodeColumns:
        """Compile a node as the base of `.name` or `[index]`.

        Unlike `_compile`, keep `chain_is_nil`, which the next link of a chain such as `a?.b.c` needs, and leave a JSON
        null as it is: a VARIANT null, which is not SQL NULL.
        """
        return self._compile_once("json", node, self._compile_json_node)

    def _compile_json_node(self, node: syntax.Node) -> _NodeColumns:
        """Compile a node for `_compile_json`, by its type."""
        match node:
            case syntax.Member(name=name):
                return self._object_value(node, _NodeColumns(F.lit(name), nullable=False))
            case syntax.Index(index=index) if self._kind(index) == "string":
                return self._object_value(node, self._key(node))
            case syntax.Index():
                return self._array_element(node)
            case syntax.Pointer():
                return _NodeColumns(self._pointers[-1])
        return self._compile(node)

    def _key(self, node: syntax.Index) -> _NodeColumns:
        """Compile the index or name in brackets; nil is an error, except in get(), which then returns nil."""
        return self._compile(node.index) if node.lenient else self._not_nil(node, node.index)

    def _array_element(self, node: syntax.Index) -> _NodeColumns:
        """Compile `base[index]` by a number; a negative index counts from the end.

        A base that is no array, and an index out of range, are errors, except in get(), where they give nil.
        """
        base, is_present = self._container(node)
        index = self._converted(node, self._key(node), self._kind(node.index), "int")
        elements = base.value if self._kind(node.base) in LISTS else variants.elements(base.value)
        size = F.size(elements)
        position = F.when(index.value < 0, index.value + size).otherwise(index.value).try_cast("int")
        compiled = replace(
            base, value=F.get(elements, position), error=_first_error(base.error, index.error), nullable=True
        )
        if node.lenient:
            return compiled
        compiled = self._with_error_where(
            node, compiled, is_present & elements.isNull(), f"{self._source(node.base)} is not an array"
        )
        # A position that no INT holds is NULL.
        outside = is_present & F.coalesce((position < 0) | (position >= size), _TRUE())
        return self._with_error_where(node, compiled, outside, "the index is out of range")

    def _object_value(self, node: syntax.Member | syntax.Index, key: _NodeColumns) -> _NodeColumns:
        """Compile `base.name` and `base[name]`: the value in an object, nil where the object lacks the name.

        A base that is something else than an object or nil is an error; get() (`lenient`) is nil there. What a nil base
        is, decides `_container`.
        """
        base, is_present = self._container(node)
        entries = variants.entries(base.value)
        value = F.try_element_at(entries, key.value)
        compiled = replace(base, value=value, error=_first_error(base.error, key.error), nullable=True)
        if self._kind(node.base) == "map" or (isinstance(node, syntax.Index) and node.lenient):
            return compiled
        return self._with_error_where(
            node, compiled, is_present & entries.isNull(), f"{self._source(node.base)} is not an object"
        )

    def _container(self, node: syntax.Member | syntax.Index) -> tuple[_NodeColumns, Column]:
        """Compile the array or object that `.name` or `[index]` reads from; return it, and a BOOLEAN: it is not nil.

        A nil container is an error, with three exceptions: the first argument of get() (`lenient`); the one directly
        before a `?.` (`optional`); and one behind a `?.` that has found nil. In `a?.b.c`, where a is nil, the whole
        chain is; where a.b is nil, `.c` is an error. The container's column `chain_is_nil` is true where a `?.` up to
        here has found nil, and None without any; get() begins a new chain.
        """
        compiled = self._compile_json(node.base)
        is_nil = compiled.value.isNull()
        if self._kind(node.base) == "any":
            # A JSON null in the record is not SQL NULL.
            is_nil |= F.is_variant_null(compiled.value)
        if isinstance(node, syntax.Index) and node.lenient:
            return replace(compiled, chain_is_nil=None), ~is_nil
        if node.optional:
            chain_is_nil = is_nil if compiled.chain_is_nil is None else compiled.chain_is_nil | is_nil
            return replace(compiled, chain_is_nil=chain_is_nil), ~is_nil
        if not compiled.nullable:
            return compiled, ~is_nil
        unexpected = is_nil if compiled.chain_is_nil is None else is_nil & ~compiled.chain_is_nil
        return self._with_error_where(node, compiled, unexpected, f"{self._source(node.base)} is nil"), ~is_nil

    def _call(self, node: syntax.Call) -> _NodeColumns:
        """Compile a function call: its arguments, then the column that the function's builder makes of them."""
        if any(isinstance(argument, syntax.Predicate) for argument in node.arguments):
            return self._predicate_call(node)
        if node.function == "now":
            return _NodeColumns(self._columns[BATCH_TIME], nullable=False)
        signature = self._checked.functions[node.function]
        arguments = node.arguments
        # waterfall([a, b]) is waterfall(a, b).
        if node.function == "waterfall" and isinstance(arguments[0], syntax.ListLiteral):
            arguments = arguments[0].items
        operands, errors = [], []
        for position, argument in enumerate(arguments):
            # The last parameter may take several arguments.
            parameter = signature.parameters[min(position, len(signature.parameters) - 1)]
            compiled, kind = self._argument(node, argument, parameter, tolerant=signature.tolerant)
            # Some functions need the text itself, not its column.
            literal = (
                argument.value if isinstance(argument, syntax.Literal) and isinstance(argument.value, str) else None
            )
            operands.append(Operand(compiled.value, kind, literal))
            errors.append(compiled.error)
        builders = HELPER_BUILDERS if signature.tolerant else BUILTIN_BUILDERS
        result = builders[node.function](operands)
        error = None if result.problem is None else self._with_source(node, result.problem)
        return _NodeColumns(result.value, _first_error(*errors, error), nullable=result.nullable)

    def _argument(
        self, call: syntax.Call, node: syntax.Node, parameter: Parameter, *, tolerant: bool
    ) -> tuple[_NodeColumns, Kind]:
        """Compile an argument to what the parameter takes; return it with its kind afterwards.

        nil is an error unless `tolerant`, in which case the function's builder replaces it. A parameter without a case
        takes the argument as it is.
        """
        compiled = self._compile(node) if tolerant else self._not_nil(call, node)
        kind = self._kind(node)
        match parameter:
            case "text" if not tolerant:
                return self._scalar(call, node, "string"), "string"
            case "text":
                text = variants.scalar(compiled.value, "string") if kind == "any" else compiled.value
                return _NodeColumns(text, compiled.error), kind
            case "numbers" if kind == "any" and len(call.arguments) == 1:
                # min(x) of one value: a list, or a single number, which only the record tells.
                numbers = F.coalesce(variants.elements(compiled.value), F.array(compiled.value))
                return _NodeColumns(numbers, compiled.error, nullable=False), "values"
            case "number" | "numbers" if kind not in LISTS and kind != "array":
                wanted: Kind = "int" if self._kind(call) == "int" else "float"
                return self._number(call, node, wanted), wanted
            case "scalar or list" if kind in LISTS:
                return compiled, kind
            case "scalar or list" if kind == "array":
                return _NodeColumns(variants.elements(compiled.value), compiled.error), "values"
            case "list" | "number list" | "numbers":
                return self._elements(call, node), kind if kind in LISTS else "values"
            case "texts" if kind in ("array", "any", "values"):
                elements = compiled.value if kind == "values" else variants.elements(compiled.value)
                return _NodeColumns(F.transform(elements, variants.as_text), compiled.error), "strings"
            case "map":
                return _NodeColumns(variants.entries(compiled.value), compiled.error), "map"
        return compiled, kind

    # Errors.

    def _with_error_where_null(
        self, node: syntax.Node, value: Column, error: Column | None, problem: str
    ) -> _NodeColumns:
        """Return columns for a value that is not nil; NULL, as from Spark's `try_` functions, means the problem."""
        return self._with_error_where(node, _NodeColumns(value, error, nullable=False), value.isNull(), problem)

    def _with_error_where(
        self, node: syntax.Node, compiled: _NodeColumns, condition: Column, problem: str
    ) -> _NodeColumns:
        """Add an error that quotes the node's source; an error that is already set takes precedence."""
        error = F.when(condition, F.lit(f"{self._source(node)}: {problem}"))
        return replace(compiled, error=_first_error(compiled.error, error))

    def _with_source(self, node: syntax.Node, problem: Column) -> Column:
        """Return an error text with the node's source before it: `a / b: division by zero`."""
        return F.concat(F.lit(f"{self._source(node)}: "), problem)

    def _source(self, node: syntax.Node) -> str:
        return source(self._checked.text, node)


# Microseconds since 1970 of the years 1 to 9999, the range of Spark's timestamps.
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
# expr's own limit.
_LONGEST_RANGE = 1_000_000
_OVERFLOW = "the result exceeds 64 bits"


def _FALSE() -> Column:  # noqa: N802 - a constant, but columns need a session
    return F.lit(0).cast("boolean")


def _TRUE() -> Column:  # noqa: N802 - a constant, but columns need a session
    return F.lit(1).cast("boolean")


def _error_or_null(compiled: _NodeColumns) -> Column:
    return F.lit(None).cast("string") if compiled.error is None else compiled.error


def _first_error(*errors: Column | None) -> Column | None:
    """Return the first error that is set in each record; None when no operand can fail."""
    possible = [error for error in errors if error is not None]
    return F.coalesce(*possible) if len(possible) > 1 else possible[0] if possible else None


def _is_equal(left: Column, left_kind: Kind, right: Column, right_kind: Kind) -> Column:
    """Return BOOLEAN, never NULL: whether two values are equal; nil equals only nil."""
    if "nil" in (left_kind, right_kind):
        return left.isNull() & right.isNull()
    # `any` is a JSON value; all other kinds are compared as SQL values.
    if "any" not in (left_kind, right_kind):
        return left.eqNullSafe(right)
    if left_kind == right_kind:
        test = variants.same(left, right)
    elif left_kind == "any":
        test = variants.scalar(left, right_kind) == _as_variant_scalar(right, right_kind)
    else:
        test = variants.scalar(right, left_kind) == _as_variant_scalar(left, left_kind)
    # nil equals only nil. Else a value of another type than was wanted makes the test NULL: not equal.
    has_nil = left.isNull() | right.isNull()
    return F.when(has_nil, left.isNull() & right.isNull()).otherwise(F.coalesce(test, _FALSE()))


def _as_variant_scalar(value: Column, kind: Kind) -> Column:
    """Cast integers to DOUBLE, as `variants.scalar` reads every number."""
    return value.cast("double") if kind in INTEGERS else value
