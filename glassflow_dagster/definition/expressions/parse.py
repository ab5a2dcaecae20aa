"""Parse the text of an expression to its tree; an error points to the position in the text."""

import json
import re
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, Tree, UnexpectedEOF, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from glassflow_dagster.definition.expressions import syntax
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.expressions.signatures import PREDICATES

# Second spelling of an operator -> its name in the tree.
_SPELLINGS = {"||": "or", "&&": "and", "^": "**", "!": "not"}

# Integers are 64 bits wide, as in GlassFlow and in Spark.
_MAX_INTEGER = 2**63 - 1

# Checker and compiler recurse into the tree, with up to five of Python's thousand stack frames per level.
_MAX_DEPTH = 100

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def parse(text: str) -> syntax.Node:
    """Parse an expression; raises ExpressionError for an empty text, a syntax error, and too deep a tree."""
    if not text.strip():
        raise ExpressionError(text, syntax.Span(0, 0), "the expression is empty; write a condition or a value")
    try:
        tree = _grammar().parse(text)
        _check_depth(text, tree)
        node: syntax.Node = _Builder(text).transform(tree)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, ExpressionError):
            raise error.orig_exc from None
        raise
    return node


@cache
def _grammar() -> Lark:
    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _check_depth(text: str, tree: Tree[Token]) -> None:
    """Raise ExpressionError when the tree has more levels than the recursion of later stages allows."""
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
    if level:
        raise ExpressionError(text, _span(level[0].meta), "nested or chained too deeply here; use `in`, or split it")


def _syntax_error(text: str, error: UnexpectedInput) -> ExpressionError:
    """Return lark's error for a text as ours: at the end of the text, or at the unexpected token or character."""
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return ExpressionError(text, syntax.Span(len(text), len(text)), "the expression ends too early")
    start = error.pos_in_stream or 0
    token = str(error.token) if isinstance(error, UnexpectedToken) else text[start]
    return ExpressionError(
        text, syntax.Span(start, start + len(token)), f"unexpected {json.dumps(token, ensure_ascii=False)}"
    )


@v_args(meta=True)
class _Builder(Transformer[Token, syntax.Node]):
    """Builds the node of each grammar rule; lark calls the method that has the name of the rule or its alias."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def ternary(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Ternary(parts[0], parts[1], parts[2], _span(meta))

    def binary(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        """Build an operator with two operands; `a not in b` becomes `not (a in b)`."""
        left, operator, right = parts
        span = _span(meta)
        # `not  in` -> `not in`
        name = " ".join(operator.split())
        if name.startswith("not "):
            return syntax.Unary("not", syntax.Binary(name.removeprefix("not "), left, right, span), span)
        return syntax.Binary(_SPELLINGS.get(name, name), left, right, span)

    def unary(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        operator, operand = parts
        return syntax.Unary(_SPELLINGS.get(operator, str(operator)), operand, _span(meta))

    def member(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Member(parts[0], str(parts[1]), optional=False, span=_span(meta))

    def optional_member(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Member(parts[0], str(parts[1]), optional=True, span=_span(meta))

    def method(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Method(parts[0], str(parts[1]), _span(meta))

    def index(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Index(parts[0], parts[1], optional=False, span=_span(meta))

    def optional_index(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Index(parts[0], parts[1], optional=True, span=_span(meta))

    def slice(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Slice(parts[0], parts[1], parts[2], _span(meta))

    def slice_from(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Slice(parts[0], parts[1], None, _span(meta))

    def slice_to(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Slice(parts[0], None, parts[1], _span(meta))

    def slice_all(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Slice(parts[0], None, None, _span(meta))

    def call(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return _call(str(parts[0]), parts[1:], _span(meta))

    def pipe(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return _call(str(parts[1]), [parts[0], *parts[2:]], _span(meta))

    def predicate(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Predicate(parts[0], _span(meta))

    def pointer(self, meta: Meta, _: list[Any]) -> syntax.Node:
        return syntax.Pointer(_span(meta))

    def pointer_member(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        # `.name` is short for `#.name`: the dot stands for the pointer.
        dot = syntax.Span(meta.start_pos, meta.start_pos + 1)
        return syntax.Member(syntax.Pointer(dot), str(parts[0]), optional=False, span=_span(meta))

    def let(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Let(str(parts[0]), parts[1], parts[2], _span(meta))

    def map_literal(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        # Names and values alternate; a name is quoted (TEXT) or a plain word.
        names = tuple(_unquoted(name) if name.type == "TEXT" else str(name) for name in parts[::2])
        return syntax.MapLiteral(names, tuple(parts[1::2]), _span(meta))

    def list_literal(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.ListLiteral(tuple(parts), _span(meta))

    def name(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Name(str(parts[0]), _span(meta))

    def number(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        """Build a number literal; raises ExpressionError for an integer beyond 64 bits and an infinite float."""
        digits = parts[0].replace("_", "")
        span = _span(meta)
        if digits[:2].lower() in ("0x", "0b", "0o"):
            value: int | float = int(digits, 0)
        else:
            value = int(digits) if digits.isdigit() else float(digits)
        if abs(value) > _MAX_INTEGER and (isinstance(value, int) or value == float("inf")):
            raise ExpressionError(
                self._text, span, f"{digits} is too large; the largest 64-bit integer is {_MAX_INTEGER}"
            )
        return syntax.Literal(value, span)

    def text(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Literal(_unquoted(parts[0]), _span(meta))

    def raw_text(self, meta: Meta, parts: list[Any]) -> syntax.Node:
        return syntax.Literal(parts[0][1:-1], _span(meta))

    def true(self, meta: Meta, _: list[Any]) -> syntax.Node:
        return syntax.Literal(value=True, span=_span(meta))

    def false(self, meta: Meta, _: list[Any]) -> syntax.Node:
        return syntax.Literal(value=False, span=_span(meta))

    def nil(self, meta: Meta, _: list[Any]) -> syntax.Node:
        return syntax.Literal(None, _span(meta))


def _call(function: str, arguments: list[Any], span: syntax.Span) -> syntax.Node:
    """Build a call. get() becomes an Index; the second argument of any(), filter() ... a predicate, braces or not."""
    if function == "get" and len(arguments) == 2:
        return syntax.Index(arguments[0], arguments[1], optional=True, span=span, lenient=True)
    if function in PREDICATES and len(arguments) == 2 and not isinstance(arguments[1], syntax.Predicate):
        arguments = [arguments[0], syntax.Predicate(arguments[1], arguments[1].span)]
    return syntax.Call(function, tuple(arguments), span)


def _unquoted(text: str) -> str:
    """Return the content of a quoted text, with its escape sequences replaced."""
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    """Return the character that an escape sequence stands for; after an unknown one, the character itself."""
    escaped = match[1]
    # x or u, then the code of a character in hexadecimal.
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)


def _span(meta: Meta) -> syntax.Span:
    return syntax.Span(meta.start_pos, meta.end_pos)
