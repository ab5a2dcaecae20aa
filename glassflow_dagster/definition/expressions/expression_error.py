"""The error of an invalid expression, with its position in the text."""

from glassflow_dagster.definition.expressions.syntax import Span
from glassflow_dagster.errors import GlassflowError


class ExpressionError(GlassflowError):
    """An expression is invalid: correct the definition at the position that the caret shows.

    `problem` is the reason alone, without the position.
    """

    def __init__(self, text: str, span: Span, problem: str) -> None:
        self.text = text
        self.span = span
        self.problem = problem
        before = text[: span.start]
        line_start = before.rfind("\n") + 1
        line = text[line_start:].split("\n", 1)[0]
        column = span.start - line_start
        carets = "^" * max(1, min(span.end - span.start, len(line) - column))
        # chr(10): a line end, since an f-string takes no backslash.
        where = f"line {before.count(chr(10)) + 1}, column {column + 1}" if "\n" in text else f"column {column + 1}"
        super().__init__(f"{problem} ({where})\n  {line}\n  {' ' * column}{carets}")

    @property
    def one_line(self) -> str:
        """The message on one line: the problem, and the expression with a caret before the mistake."""
        marked = f"{self.text[: self.span.start]}^{self.text[self.span.start :]}"
        return f"{self.problem} (at ^ in: {' '.join(marked.split())})"
