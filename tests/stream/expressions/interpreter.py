"""A plain Python interpreter of parsed expressions, to compare the compiled columns with.

It supports predicates but no other functions: fields, literals, operators, elements, slices, ranges, lists and objects.
None stands for nil.
"""

from typing import Any

from glassflow_dagster.definition.expressions.syntax import (
    Binary,
    Call,
    Field,
    Index,
    ListLiteral,
    Literal,
    MapLiteral,
    Member,
    Node,
    Pointer,
    Predicate,
    Slice,
    Ternary,
    Unary,
)

# The record's key for the element that a predicate is evaluated on.
_ELEMENT = "#"


class NoValueError(Exception):
    """The expression has no value for this record."""


def interpret(node: Node, record: dict[str, Any]) -> Any:
    """Return the value of a node for a record."""
    match node:
        case Literal(value=value):
            return value
        case Field(name=name):
            return record[name]
        case ListLiteral(items=items):
            return [interpret(item, record) for item in items]
        case MapLiteral(names=names, values=values):
            return {name: interpret(value, record) for name, value in zip(names, values, strict=True)}
        case Pointer():
            return record[_ELEMENT]
        case Slice(base=base, start=start, end=end):
            bounds = [None if at is None else _number(interpret(at, record)) for at in (start, end)]
            value = interpret(base, record)
            # Inside JSON only arrays are cut: a slice of a value of unknown type is a list.
            if isinstance(value, str) and not isinstance(base, Field):
                raise NoValueError
            return _cut(value, *bounds)
        case Call(function=function, arguments=(listed, Predicate(body=body))):
            return _predicate_call(function, interpret(listed, record), body, record)
        case Member() | Index():
            return _chain(node, record)[0]
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


def _chain(node: Node, record: dict[str, Any]) -> tuple[Any, bool]:
    """Return a value, and whether a `?.` before it has ended the chain of names that it belongs to."""
    if not isinstance(node, Member | Index):
        return interpret(node, record), False
    base, ended = _chain(node.base, record)
    if isinstance(node, Index) and node.lenient:
        ended = False
    key = node.name if isinstance(node, Member) else interpret(node.index, record)
    if ended or (base is None and node.optional):
        return None, not (isinstance(node, Index) and node.lenient)
    try:
        return _look_up(base, key), False
    except NoValueError:
        if isinstance(node, Index) and node.lenient:
            return None, False
        raise


def _cut(value: Any, *bounds: float | None) -> Any:
    if not isinstance(value, str | list):
        raise NoValueError
    return value[slice(*bounds)]


def _predicate_call(function: str, listed: Any, body: Node, record: dict[str, Any]) -> Any:
    if not isinstance(listed, list):
        raise NoValueError

    def result_for(element: Any) -> Any:
        return interpret(body, {**record, _ELEMENT: element})

    def true(element: Any) -> bool:
        return _truth(result_for(element))

    match function:
        case "any":
            return any(map(true, listed))
        case "all":
            return all(map(true, listed))
        case "none":
            return not any(map(true, listed))
        case "one":
            return sum(list(map(true, listed))) == 1
        case "count":
            return sum(list(map(true, listed)))
        case "filter":
            return [element for element in listed if true(element)]
        case "map":
            return [result_for(element) for element in listed]
        case "find":
            return next((element for element in listed if true(element)), None)
        case "findLast":
            return next((element for element in reversed(listed) if true(element)), None)
        case "findIndex":
            return next((place for place, element in enumerate(listed) if true(element)), None)
        case "sum":
            return _bounded(sum(_number(result_for(element)) for element in listed))
    raise AssertionError(function)


def _binary(node: Binary, record: dict[str, Any]) -> Any:
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
            return isinstance(left, str) and left in right
        case "in":
            return any(_same(left, item) for item in _listed(right))
        case "..":
            return _range(_number(left), _number(right))
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


def _listed(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise NoValueError
    return value or []


def _range(first: float, last: float) -> list[int]:
    if last - first >= 1_000_000:
        raise NoValueError
    return list(range(int(first), int(last) + 1))


def _ordered(operator: str, left: Any, right: Any) -> bool:
    read = _text if isinstance(left, str) or isinstance(right, str) else _number
    one, other = _of_one_type(read(left), read(right))
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


def _look_up(base: Any, key: Any) -> Any:
    if isinstance(base, dict) and isinstance(key, str):
        return base.get(key)
    if isinstance(base, list) and isinstance(key, int) and -len(base) <= key < len(base):
        return base[key]
    raise NoValueError


def _same(left: Any, right: Any) -> bool:
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right)]
    if all(numbers):
        left, right = _of_one_type(left, right)
    return left == right and (all(numbers) or type(left) is type(right))


def _of_one_type(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two values; a whole number beside a float as a float, which Python compares exactly."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


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
