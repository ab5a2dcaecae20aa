"""Expressions in Scala (scala/expressions/Program.scala): evaluate checked expressions on the fields of an event.

This module writes the syntax tree of each expression, with the kinds that the checker found, as a program in JSON.
scala/expressions/Terms.scala reads it; the functions are in the files beside it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions import syntax
from glassflow_dagster.definition.expressions.check import Checked
from glassflow_dagster.definition.expressions.durations import microseconds
from glassflow_dagster.definition.expressions.outputs import OutputKind
from glassflow_dagster.definition.expressions.patterns import engine_pattern
from glassflow_dagster.stream.stages.scope import BATCH_TIME, Scope, struct_of

# The field of the result that says why the first output that cannot be evaluated cannot.
REASON = "_reason"

# The terms that look a value up, or have one: these cost less than to keep their value.
_CHEAP = (syntax.Literal, syntax.Field, syntax.Pointer, syntax.Member, syntax.Index)


@dataclass(frozen=True)
class Evaluated:
    """An expression whose value becomes a field.

    name: of the field in the result.
    value: the expression.
    kind: of the field, as `output_kind` chooses it.
    output_type: as the definition declares it, empty for no conversion.
    prefix: what the reason of an event begins with for which the expression cannot be evaluated.
    is_condition: nil, which is neither true nor false, is a reason, too.
    """

    name: str
    value: Checked
    kind: OutputKind
    output_type: str
    prefix: str
    is_condition: bool = False


def evaluate(outputs: Sequence[Evaluated], scope: Scope) -> Column:
    """Evaluate expressions on an event.

    scope: the names that the expressions may use, with their columns.
    Return STRUCT<a field for each output, _reason STRING>: NULL for nil and where an expression cannot be evaluated;
    the reason is that of the first such output.
    """
    positions = scope.in_struct.positions
    text, computed = program(outputs, positions)
    struct = F.col(scope.in_struct.column) if positions else struct_of([])
    values = struct_of([scope.visible[name] for name in computed])
    return F.call_function("glassflow_evaluate", struct, values, F.lit(text))


def program(outputs: Iterable[Evaluated], positions: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
    """Return the program of these outputs, and the names that it reads from a second struct, in their order.

    positions: of the names that it reads from the first struct.
    """
    fields: dict[str, str] = {}  # name -> kind
    written = [_output(output, fields) for output in outputs]
    computed = tuple(name for name in fields if name not in positions)
    places = [
        [kind, True, positions[name]] if name in positions else [kind, False, computed.index(name)]
        for name, kind in fields.items()
    ]
    return json.dumps({"fields": places, "outputs": written}), computed


def _output(output: Evaluated, fields: dict[str, str]) -> dict[str, Any]:
    """Return an output as the program has it; add the fields that it reads to `fields`."""
    nodes = _Nodes(output.value, fields)
    nodes.number(output.value.root)
    return {
        "name": output.name,
        "kind": output.kind,
        "type": output.output_type,
        "prefix": output.prefix,
        "condition": output.is_condition,
        "text": output.value.text,
        "nodes": nodes.written,
        "kept": sorted(nodes.kept),
    }


class _Nodes:
    """Writes the nodes of one expression, operands before the operations that have them.

    A variable's value is at each of its uses in the tree, but written once.
    """

    def __init__(self, checked: Checked, fields: dict[str, str]) -> None:
        self._checked = checked
        self._fields = fields
        self._numbers: dict[syntax.Node, int] = {}
        self.written: list[list[Any]] = []
        # The numbers of nodes that occur several times, whose value is computed once.
        self.kept: set[int] = set()

    def number(self, node: syntax.Node) -> int:
        """Return the number of a node; write it first where it is new."""
        if node in self._numbers:
            if not isinstance(node, _CHEAP):
                self.kept.add(self._numbers[node])
            return self._numbers[node]
        kind, parts = self._parts(node)
        self.written.append([kind, self._checked.kinds[node], node.span.start, node.span.end, *parts])
        self._numbers[node] = len(self.written) - 1
        return self._numbers[node]

    def _numbers_of(self, nodes: Iterable[syntax.Node]) -> list[int]:
        return [self.number(node) for node in nodes]

    def _number_or_none(self, node: syntax.Node | None) -> int | None:
        return None if node is None else self.number(node)

    def _field(self, name: str, kind: str) -> int:
        self._fields.setdefault(name, kind)
        return list(self._fields).index(name)

    def _parts(self, node: syntax.Node) -> tuple[str, list[Any]]:
        """Return the type of a node, and what its term reads; see scala/expressions/Terms.scala."""
        match node:
            case syntax.Literal(value=value):
                return "literal", [value]
            case syntax.Field(name=name):
                return "field", [self._field(name, self._checked.kinds[node])]
            case syntax.Pointer():
                return "pointer", []
            case syntax.ListLiteral(items=items):
                return "list", [self._numbers_of(items)]
            case syntax.MapLiteral(names=names, values=values):
                return "object", [list(names), self._numbers_of(values)]
            case syntax.Member(base=base, name=name, optional=optional):
                return "member", [self.number(base), name, optional]
            case syntax.Index(base=base, index=index, lenient=True):
                return "get", [self.number(base), self.number(index)]
            case syntax.Index(base=base, index=index, optional=optional):
                return "index", [self.number(base), self.number(index), optional]
            case syntax.Slice(base=base, start=start, end=end):
                return "slice", [self.number(base), self._number_or_none(start), self._number_or_none(end)]
            case syntax.Method(base=base, name=name):
                return "method", [self.number(base), name]
            case syntax.Unary(operator="not", operand=operand):
                return "not", [self.number(operand)]
            case syntax.Unary(operator=operator, operand=operand):
                return "sign", [self.number(operand), operator]
            case syntax.Ternary(condition=condition, then=then, otherwise=otherwise):
                return "ternary", self._numbers_of((condition, then, otherwise))
            case syntax.Binary():
                return self._binary(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Name() | syntax.Let() | syntax.Predicate():
                raise AssertionError(f"the checker let {node!r} through")

    def _binary(self, node: syntax.Binary) -> tuple[str, list[Any]]:
        match node:
            case syntax.Binary(operator="matches", left=left, right=syntax.Literal(value=pattern)):
                return "matches", [self.number(left), engine_pattern(str(pattern))]
            case syntax.Binary(operator="in", left=left, right=syntax.ListLiteral(items=items)):
                return "in list", [self.number(left), self._numbers_of(items)]
        return "binary", [self.number(node.left), self.number(node.right), node.operator]

    def _call(self, node: syntax.Call) -> tuple[str, list[Any]]:
        match node:
            case syntax.Call(function=function, arguments=(listed, syntax.Predicate(body=body))):
                return "predicate", [function, self.number(listed), self.number(body)]
            case syntax.Call(function="now"):
                return "field", [self._field(BATCH_TIME, "time")]
            case syntax.Call(function="duration", arguments=(syntax.Literal(value=length),)):
                return "literal", [microseconds(str(length))]
            # waterfall([a, b]) is waterfall(a, b).
            case syntax.Call(function="waterfall", arguments=(syntax.ListLiteral(items=items),)):
                arguments = items
            case _:
                arguments = node.arguments
        kind = "helper" if self._checked.functions[node.function].tolerant else "builtin"
        return kind, [node.function, self._numbers_of(arguments)]
