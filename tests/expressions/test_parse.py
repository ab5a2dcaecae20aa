"""Precedence and spelling are expr's own."""

import pytest

from glassflow_dagster.expressions.language.parse import parse
from glassflow_dagster.expressions.language.syntax import (
    Binary,
    Call,
    Index,
    ListLiteral,
    Literal,
    Member,
    Method,
    Name,
    Node,
    Ternary,
    Unary,
)


def written(node: Node) -> str:  # noqa: C901, PLR0911 - one case a kind of node
    """Write a tree with every parenthesis."""
    match node:
        case Literal(value=value):
            return repr(value)
        case Name(name=name):
            return name
        case Unary(operator=operator, operand=operand):
            return f"({operator} {written(operand)})"
        case Binary(operator=operator, left=left, right=right):
            return f"({written(left)} {operator} {written(right)})"
        case Ternary(condition=condition, then=then, otherwise=otherwise):
            return f"({written(condition)} ? {written(then)} : {written(otherwise)})"
        case Member(base=base, name=name, optional=optional):
            return f"{written(base)}{'?.' if optional else '.'}{name}"
        case Index(base=base, index=index, optional=optional):
            return f"{written(base)}{'?.' if optional else ''}[{written(index)}]"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(written, arguments))})"
        case Method(base=base, name=name):
            return f"{written(base)}.{name}()"
        case ListLiteral(items=items):
            return f"[{', '.join(map(written, items))}]"
    raise AssertionError(node)


TREES = [
    ("a or b and not c", "(a or (b and (not c)))"),
    ("a || b && !c", "(a or (b and (not c)))"),
    ("not a == b", "((not a) == b)"),
    ("a + b * c - d", "((a + (b * c)) - d)"),
    ("a - b - c", "((a - b) - c)"),
    ("-a ** b", "(- (a ** b))"),
    ("a ^ b ** -c", "(a ** (b ** (- c)))"),
    ("a ?? b + c", "((a ?? b) + c)"),
    ("a ?? -1 ?? b", "((a ?? (- 1)) ?? b)"),
    ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
    ("a + 1 > b and c", "(((a + 1) > b) and c)"),
    ("a not  in [1, 2,]", "(not (a in [1, 2]))"),
    ("a not contains 'x'", "(not (a contains 'x'))"),
    ('a.b?.c[0]?.["d"]', "a.b?.c[0]?.['d']"),
    ("date(a).Year()", "date(a).Year()"),
    ("f(a, b,)", "f(a, b)"),
    ("order + android + nilly + inner", "(((order + android) + nilly) + inner)"),
    ('"a\\"\\n\\u00e9" + `raw\\n`', "('a\"\\né' + 'raw\\\\n')"),
    ("0xFF + 1_000 + 1.5e3 + .5", "(((255 + 1000) + 1500.0) + 0.5)"),
    ("a // the rest\n == /* not */ 1", "(a == 1)"),
]


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_operators_bind_as_in_expr(text: str, tree: str) -> None:
    assert written(parse(text)) == tree
