"""Whether a repeated block falls into the partitions that it fell into before.

ClickHouse keeps insert tokens by partition. Where the partition key rests on a value that the server makes anew with
each insert (`ingested_at DEFAULT now()`), a repeated block is a new one in another partition. So every partition key,
of the target and of the tables behind its views, must be a function of columns that the pipeline fills.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import names_in, quote_name
from glassflow_dagster.clickhouse.layout import Layout, read_layout
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.target.views import Place, View, WrittenTables

_CALL = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\b([A-Za-z_]\w*)\s*\(")
# What stands before a parenthesis and is no function.
_WORDS = frozenset({"IN", "AND", "OR", "NOT", "LIKE", "ILIKE", "BETWEEN", "WHEN", "THEN", "ELSE", "CASE", "AS", "FROM"})
_SIGN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\w+|.", re.DOTALL)
# A column of the batch's time stands for the server's clock in these.
_TIMES = re.compile(r"(LowCardinality\()?(Nullable\()?DateTime(64)?\b")
# Defaults that are the server's clock and nothing else, as the server writes them.
_CLOCK = re.compile(r"(?:toDateTime(?:64)?\()?(?:now|now64|nowInBlock)\([^()]*\)(?:, \d)?\)?", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """A partition key that a repeated block may not keep: the table, and the reason."""

    place: Place
    reason: str

    def __str__(self) -> str:
        """Write it as a line, with the remedy."""
        return (
            f"{'.'.join(self.place)} forgets a block that is repeated in another partition: {self.reason}; map a field "
            "or _batch_time to the column, partition by columns that the pipeline fills, or say sink.delivery: "
            "at_least_once"
        )


@dataclass
class PartitionKeys:
    """The partition keys of a target and of the tables behind its views, traced to the columns that the pipeline fills.

    filled: columns of the target that have the same value for a record whenever it is sent. clocks: others that the
    server would fill with its clock, and on which a partition key rests: the batch's time in them makes it repeatable.
    """

    client: Client
    written: WrittenTables
    filled: Collection[str]
    clocks: set[str] = field(default_factory=set)
    _layouts: dict[Place, Layout] = field(default_factory=dict)
    _changing: dict[str, bool] = field(default_factory=dict)

    def faults(self) -> list[Fault]:
        """Find the partition keys that may differ; fills `clocks`. Raises what `fetch` raises."""
        target = self.written.target
        key = self._layout(target).partition_key
        found = [Fault(target, reason) for reason in self._of_target(key, frozenset())]
        for view in self.written.views:
            key = self._layout(view.target).partition_key
            found += [Fault(view.target, reason) for reason in self._of_view(view, key)]
        return found

    def _layout(self, place: Place) -> Layout:
        if place not in self._layouts:
            self._layouts[place] = read_layout(self.client, *place)
        return self._layouts[place]

    def _of_target(self, expression: str, seen: frozenset[str]) -> Iterator[str]:
        """Say why an expression on the target's columns may have another value for a repeated row."""
        yield from self._functions(expression)
        columns = self._layout(self.written.target).columns
        for name in sorted(names_in(expression) & columns.keys() - set(self.filled) - seen):
            column = columns[name]
            if column.default_kind == "DEFAULT" and _CLOCK.fullmatch(column.default) and _TIMES.match(column.type):
                self.clocks.add(name)
                continue
            for reason in self._of_target(column.default, seen | {name}):
                yield f"{reason}, by which the server fills column {quote_name(name)}"

    def _of_view(self, view: View, expression: str) -> Iterator[str]:
        """Do the same for an expression on the columns of a view's target."""
        outputs = select_list(view.select)
        columns = self._layout(view.target).columns
        for name in sorted(names_in(expression) & columns.keys()):
            if outputs is None:
                yield from self._functions(view.select, f" in view {view.name}")
            elif name in outputs:
                yield from self._of_output(view, outputs, name, frozenset())
            elif "*" in outputs:
                yield from self._of_source(view, name)
            else:
                yield from self._functions(
                    columns[name].default, f", by which the server fills column {quote_name(name)}"
                )

    def _of_output(self, view: View, outputs: Mapping[str, str], name: str, seen: frozenset[str]) -> Iterator[str]:
        expression = outputs[name]
        yield from self._functions(expression, f" in view {view.name}")
        source = self._layout(view.source).columns
        for inner in sorted(names_in(expression) - seen):
            if inner in outputs and inner != name and inner not in source:
                yield from self._of_output(view, outputs, inner, seen | {name})
            elif inner in source:
                yield from self._of_source(view, inner)
        if re.search(r"\bJOIN\b", view.select) and not names_in(expression) & source.keys():
            yield f"column {quote_name(name)} of view {view.name} comes from a joined table"

    def _of_source(self, view: View, name: str) -> Iterator[str]:
        """Trace a column of the table that a view reads."""
        if view.source == self.written.target:
            yield from self._of_target(quote_name(name), frozenset())
            return
        for feeding in self.written.views:
            if feeding.target == view.source:
                yield from self._of_view(feeding, quote_name(name))

    def _functions(self, expression: str, where: str = "") -> Iterator[str]:
        for name in sorted({found for found in _CALL.findall(expression) if found and found.upper() not in _WORDS}):
            if name not in self._changing:
                self._changing[name] = _is_changing(self.client, name)
            if self._changing[name]:
                yield f"{name}() gives another value each time{where}"


def _is_changing(client: Client, function: str) -> bool:
    """Whether a function may give the same row another value later; one that the server does not list may."""
    # Newer servers call the column `deterministic`.
    columns = fetch(
        client,
        "SELECT name FROM system.columns WHERE database = 'system' AND table = 'functions' "
        "AND name LIKE '%deterministic'",
    )
    flag = columns[0][0] if columns else "1"
    found = fetch(
        client,
        f"SELECT max(coalesce({flag}, 0)) FROM system.functions "
        "WHERE name = {name:String} OR (case_insensitive AND lower(name) = lower({name:String}))",
        {"name": function},
    )
    return not found[0][0]


def select_list(select: str) -> dict[str, str] | None:
    """Read a query's list of columns, as the server writes it: name -> expression, '*' for all of the source's.

    None for a query of several SELECTs at its outermost level, whose columns stand in no one list.
    """
    signs = list(_outer(select))
    words = [text.upper() for _, text in signs]
    if "UNION" in words or "INTERSECT" in words or "EXCEPT" in words or "SELECT" not in words:
        return None
    start = signs[words.index("SELECT")][0] + len("SELECT")
    if "FROM" not in words:
        return None
    end = signs[words.index("FROM")][0]
    text = select[start:end].strip().removeprefix("DISTINCT ").strip()
    outputs: dict[str, str] = {}
    for item in _cut(text):
        expression, _, alias = item.rpartition(" AS ")
        name = alias if expression else item.rpartition(".")[2]
        outputs["*" if name.startswith("*") else name.strip("`")] = expression or item
    return outputs


def _outer(text: str) -> Iterator[tuple[int, str]]:
    """Give the signs of the outermost level, with where they begin."""
    depth = 0
    for found in _SIGN.finditer(text):
        sign = found[0]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        if depth == 0:
            yield found.start(), sign


def _cut(text: str) -> Iterator[str]:
    """Cut at the commas of the outermost level."""
    begin = 0
    for place, sign in _outer(text):
        if sign == ",":
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()
