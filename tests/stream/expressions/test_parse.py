"""Precedence and syntax as in the expr language."""

import pytest

from glassflow_dagster.definition.expressions.parse import parse
from glassflow_dagster.definition.expressions.syntax import (
    Binary,
    Call,
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


def written(node: Node) -> str:
    """Return the text of a tree with every parenthesis."""
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
        case Slice(base=base, start=start, end=end):
            return f"{written(base)}[{'' if start is None else written(start)}:{'' if end is None else written(end)}]"
        case Predicate(body=body):
            return f"{{{written(body)}}}"
        case Pointer():
            return "#"
        case MapLiteral(names=names, values=values):
            return f"{{{', '.join(f'{name}: {written(value)}' for name, value in zip(names, values, strict=True))}}}"
        case Let(name=name, value=value, body=body):
            return f"(let {name} = {written(value)}; {written(body)})"
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
    ("0b101 + 0o17 + 0XfF", "((5 + 15) + 255)"),
    ("any(a, # > 1) and b", "(any(a, {(# > 1)}) and b)"),
    ("filter(a, {.b.c startsWith 'J'})", "filter(a, {(#.b.c startsWith 'J')})"),
    ("map(a, {b: #})", "map(a, {{b: #}})"),
    ("map(a, {{b: #}})", "map(a, {{b: #}})"),
    ("a | f() | g(b) ? c : d | h()", "(g(f(a), b) ? c : h(d))"),
    ("a or b | f()", "f((a or b))"),
    ("a | filter(# in b)", "filter(a, {(# in b)})"),
    ("a in 1..n - 1 and b", "((a in (1 .. (n - 1))) and b)"),
    ("a[1:-1][:2][3:][:]", "a[1:(- 1)][:2][3:][:]"),
    ("a[b ? 1 : 2:3]", "a[(b ? 1 : 2):3]"),
    ("{a: 1, 'b c': [2], \"d\": {},}", "{a: 1, b c: [2], d: {}}"),
    ("let a = 1; let b = a | f(); b * a", "(let a = 1; (let b = f(a); (b * a)))"),
    ("get(a, 1).b", "a?.[1].b"),
    ("a // the rest\n == /* not */ 1", "(a == 1)"),
]


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_operators_bind_as_in_expr(text: str, tree: str) -> None:
    assert written(parse(text)) == tree
