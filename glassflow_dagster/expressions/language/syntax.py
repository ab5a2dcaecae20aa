"""An expression as a tree. Every node knows its place in the text, for errors that point at it.

Nodes are values: equal when they say the same at the same place, so that what is found out about one (its kind) can
be kept in a mapping beside the tree.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Where a node stands: from `start` up to but without `end`, in characters."""

    start: int
    end: int


@dataclass(frozen=True)
class Literal:
    """A text, number, truth value, or nil (None)."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True)
class ListLiteral:
    """`[a, b]`."""

    items: "tuple[Node, ...]"
    span: Span


@dataclass(frozen=True)
class Name:
    """A name as it is written; the checker makes fields of names."""

    name: str
    span: Span


@dataclass(frozen=True)
class Field:
    """A declared field, its name dotted where the declaration's is."""

    name: str
    span: Span


@dataclass(frozen=True)
class Member:
    """`base.name`, or `base?.name`, which is nil where base is."""

    base: "Node"
    name: str
    optional: bool
    span: Span


@dataclass(frozen=True)
class Index:
    """`base[index]`, or `base?.[index]`, which is nil where base is."""

    base: "Node"
    index: "Node"
    optional: bool
    span: Span


@dataclass(frozen=True)
class Unary:
    """`-`, `+` or `not` and its operand."""

    operator: str
    operand: "Node"
    span: Span


@dataclass(frozen=True)
class Binary:
    """Two operands and the operator between them, by one name each: `and`, never `&&`; `**`, never `^`."""

    operator: str
    left: "Node"
    right: "Node"
    span: Span


@dataclass(frozen=True)
class Ternary:
    """`condition ? then : otherwise`."""

    condition: "Node"
    then: "Node"
    otherwise: "Node"
    span: Span


@dataclass(frozen=True)
class Call:
    """A function and its arguments."""

    function: str
    arguments: "tuple[Node, ...]"
    span: Span


@dataclass(frozen=True)
class Method:
    """A part of a time: `date(x).Year()`."""

    base: "Node"
    name: str
    span: Span


Node = Literal | ListLiteral | Name | Field | Member | Index | Unary | Binary | Ternary | Call | Method
