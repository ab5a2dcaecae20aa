"""The syntax tree of an expression. Every node has its position in the text, for errors that point to it.

Nodes are values: equal when content and position are equal, so that the checker can note the kind of each node in a
mapping beside the tree.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The position of a node in the text, in characters: from `start` up to, but not including, `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class Literal:
    """A text, number, bool, or nil (None)."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True)
class ListLiteral:
    """`[a, b]`."""

    items: "tuple[Node, ...]"
    span: Span


@dataclass(frozen=True)
class MapLiteral:
    """`{a: 1, "b": 2}`: names and values, in order."""

    names: tuple[str, ...]
    values: "tuple[Node, ...]"
    span: Span


@dataclass(frozen=True)
class Let:
    """`let name = value; body`; the checker replaces the name by the value."""

    name: str
    value: "Node"
    body: "Node"
    span: Span


@dataclass(frozen=True)
class Predicate:
    """The condition of any(), filter() ... on each element: `{# > 1}`, also without the braces."""

    body: "Node"
    span: Span


@dataclass(frozen=True)
class Pointer:
    """`#`, the element that the innermost predicate is evaluated for."""

    span: Span


@dataclass(frozen=True)
class Name:
    """A name as it is written; the checker replaces it by a field or a variable's value."""

    name: str
    span: Span


@dataclass(frozen=True)
class Field:
    """A declared field, its name dotted where the declaration's is."""

    name: str
    span: Span


@dataclass(frozen=True)
class Member:
    """`base.name`, or `base?.name`, which is nil where base is nil."""

    base: "Node"
    name: str
    optional: bool
    span: Span


@dataclass(frozen=True)
class Index:
    """`base[index]`; `base?.[index]`, which is nil where base is nil; or `get(base, index)`.

    lenient: True for get(), which is also nil where there is no such element.
    """

    base: "Node"
    index: "Node"
    optional: bool
    span: Span
    lenient: bool = False


@dataclass(frozen=True)
class Slice:
    """`base[start:end]`; either bound may be left out."""

    base: "Node"
    start: "Node | None"
    end: "Node | None"
    span: Span


@dataclass(frozen=True)
class Unary:
    """`-`, `+` or `not` and its operand."""

    operator: str
    operand: "Node"
    span: Span


@dataclass(frozen=True)
class Binary:
    """Two operands and the operator between them; each operator has one name: `and`, not `&&`; `**`, not `^`."""

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
    """A part of a time or a duration: `date(x).Year()`."""

    base: "Node"
    name: str
    span: Span


Node = (
    Literal
    | ListLiteral
    | MapLiteral
    | Let
    | Predicate
    | Pointer
    | Name
    | Field
    | Member
    | Index
    | Slice
    | Unary
    | Binary
    | Ternary
    | Call
    | Method
)
