"""Evaluates an expression's tree in plain Python: what the compiled columns are compared with.

It knows the language without functions: fields, literals, operators, elements. nil is None.
"""

from typing import Any

from glassflow_dagster.expressions.language.syntax import (
    Binary,
    Field,
    Index,
    ListLiteral,
    Literal,
    Member,
    Node,
    Ternary,
    Unary,
)


class NoValueError(Exception):
    """The expression has no value for this record."""


def interpret(node: Node, record: dict[str, Any]) -> Any:  # noqa: PLR0911 - one case a kind of node
    match node:
        case Literal(value=value):
            return value
        case Field(name=name):
            return record[name]
        case ListLiteral(items=items):
            return [interpret(item, record) for item in items]
        case Member(base=base, name=name, optional=optional):
            return _look_up(interpret(base, record), name, optional=optional)
        case Index(base=base, index=index, optional=optional):
            return _look_up(interpret(base, record), interpret(index, record), optional=optional)
        case Ternary(condition=condition, then=then, otherwise=otherwise):
            return interpret(then if _truth(interpret(condition, record)) else otherwise, record)
        case Unary(operator="not", operand=operand):
            return not _truth(interpret(operand, record))
        case Unary(operator=operator, operand=operand):
            value = _number(interpret(operand, record))
            return _bounded(-value) if operator == "-" else value
        case Binary():
            return _binary(node, record)
    raise AssertionError(node)


def _binary(node: Binary, record: dict[str, Any]) -> Any:  # noqa: C901, PLR0911 - one case an operator
    left = interpret(node.left, record)
    match node.operator:
        case "and":
            return _truth(left) and _truth(interpret(node.right, record))
        case "or":
            return _truth(left) or _truth(interpret(node.right, record))
        case "??":
            return interpret(node.right, record) if left is None else left
    right = interpret(node.right, record)
    match node.operator:
        case "==":
            return _same(left, right)
        case "!=":
            return not _same(left, right)
        case "in" if isinstance(right, dict):
            return left in right
        case "in":
            return any(_same(left, item) for item in right or [])
        case "contains":
            return _text(right) in _text(left)
        case "startsWith":
            return _text(left).startswith(_text(right))
        case "endsWith":
            return _text(left).endswith(_text(right))
        case "<" | "<=" | ">" | ">=":
            return _ordered(node.operator, left, right)
        case "+" if isinstance(left, str) or isinstance(right, str):
            return _text(left) + _text(right)
    return _arithmetic(node.operator, _number(left), _number(right))


def _ordered(operator: str, left: Any, right: Any) -> bool:
    read = _text if isinstance(left, str) or isinstance(right, str) else _number
    one, other = read(left), read(right)
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[operator]


def _arithmetic(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return _bounded(left + right)
        case "-":
            return _bounded(left - right)
        case "*":
            return _bounded(left * right)
    if right == 0:
        raise NoValueError
    if operator == "/":
        return left / right
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _bounded(value: float) -> float:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise NoValueError
    return value


def _look_up(base: Any, key: Any, *, optional: bool) -> Any:
    if base is None and optional:
        return None
    if isinstance(base, dict) and isinstance(key, str):
        return base.get(key)
    if isinstance(base, list) and isinstance(key, int) and -len(base) <= key < len(base):
        return base[key]
    raise NoValueError


def _same(left: Any, right: Any) -> bool:
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right)]
    return left == right and (all(numbers) or type(left) is type(right))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NoValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NoValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NoValueError
    return value
