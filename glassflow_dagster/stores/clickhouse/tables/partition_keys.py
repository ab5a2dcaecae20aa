"""Check that a repeated block goes into the same partitions as before.

ClickHouse keeps insert tokens per partition. When a partition key depends on a value that the server computes anew for
each insert (`ingested_at DEFAULT now()`), a repeated block may go into another partition and is inserted again. So
every partition key, of the target and of the targets of its views, must be a deterministic function of columns that the
pipeline fills.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.identifiers import names_in, quote_name
from glassflow_dagster.stores.clickhouse.layout import Layout, read_layout
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.sql_text import split_at_commas, top_level_tokens
from glassflow_dagster.stores.clickhouse.tables.views import TableId, View, WrittenTables

_CALL = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\b([A-Za-z_]\w*)\s*\(")
# Keywords that may stand before a parenthesis and are no functions.
_KEYWORDS = frozenset(
    {"IN", "AND", "OR", "NOT", "LIKE", "ILIKE", "BETWEEN", "WHEN", "THEN", "ELSE", "CASE", "AS", "FROM"}
)
# Types of clock columns that can be filled with the batch time instead.
_TIME_TYPE = re.compile(r"(LowCardinality\()?(Nullable\()?DateTime(64)?\b")
# Default expressions that are the server's clock alone, as the server formats them.
_CLOCK_EXPRESSION = re.compile(r"(?:toDateTime(?:64)?\()?(?:now|now64|nowInBlock)\([^()]*\)(?:, \d)?\)?", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """A partition key that may differ for a repeated block: the table, and the reason."""

    table_id: TableId
    reason: str

    def __str__(self) -> str:
        """Return the problem in one line, with the remedy."""
        return (
            f"{'.'.join(self.table_id)} does not recognise a block that is repeated in another partition: "
            f"{self.reason}; map a field or _batch_time to the column, partition by columns that the pipeline fills, "
            "or set sink.delivery: at_least_once"
        )


@dataclass
class PartitionKeys:
    """The partition keys of a target and of its views' targets, traced to the columns that the pipeline fills.

    filled: the target's columns that the pipeline fills, always with the same value for a record. clocks (result of
    `faults`): further columns of the target that a partition key depends on and that the server fills with its clock;
    filling them with the batch time makes the key repeatable.
    """

    client: Client
    written: WrittenTables
    filled: Collection[str]
    clocks: set[str] = field(default_factory=set)
    _layouts: dict[TableId, Layout] = field(default_factory=dict)
    _nondeterministic: dict[str, bool] = field(default_factory=dict)

    def faults(self) -> list[Fault]:
        """Return the partition keys that may differ for a repeated block; sets `clocks`. Raises what `fetch` raises."""
        target = self.written.target
        key = self._layout(target).partition_key
        faults = [Fault(target, reason) for reason in self._target_reasons(key, frozenset())]
        for view in self.written.views:
            key = self._layout(view.target).partition_key
            faults += [Fault(view.target, reason) for reason in self._view_reasons(view, key)]
        return faults

    def _layout(self, table_id: TableId) -> Layout:
        """Return a table's layout, which is read once."""
        if table_id not in self._layouts:
            self._layouts[table_id] = read_layout(self.client, *table_id)
        return self._layouts[table_id]

    def _target_reasons(self, expression: str, seen: frozenset[str]) -> Iterator[str]:
        """Yield why an expression on the target's columns may have another value for a repeated row.

        Defaults of columns that the pipeline does not fill are followed; seen: columns followed already. A column whose
        default is the server's clock is added to `clocks` instead: the pipeline can fill it with the batch time.
        """
        yield from self._function_reasons(expression)
        columns = self._layout(self.written.target).columns
        for name in sorted(names_in(expression) & columns.keys() - set(self.filled) - seen):
            column = columns[name]
            is_clock = _CLOCK_EXPRESSION.fullmatch(column.default) and _TIME_TYPE.match(column.type)
            if column.default_kind == "DEFAULT" and is_clock:
                self.clocks.add(name)
                continue
            for reason in self._target_reasons(column.default, seen | {name}):
                yield f"{reason}, with which the server fills column {quote_name(name)}"

    def _view_reasons(self, view: View, expression: str) -> Iterator[str]:
        """Yield why an expression on the columns of a view's target may have another value for a repeated row.

        A column is an output of the view's query, a column of its source (`SELECT *`), or filled by its own default. A
        query without a single list of outputs must be deterministic as a whole.
        """
        outputs = select_list(view.select)
        columns = self._layout(view.target).columns
        for name in sorted(names_in(expression) & columns.keys()):
            if outputs is None:
                yield from self._function_reasons(view.select, f" in view {view.name}")
            elif name in outputs:
                yield from self._output_reasons(view, outputs, name, frozenset())
            elif "*" in outputs:
                yield from self._source_reasons(view, name)
            else:
                yield from self._function_reasons(
                    columns[name].default, f", with which the server fills column {quote_name(name)}"
                )

    def _output_reasons(self, view: View, outputs: Mapping[str, str], name: str, seen: frozenset[str]) -> Iterator[str]:
        """Yield why an output column of a view's query may have another value for a repeated row.

        outputs: the query's `select_list`, whose expressions may use each other's names.
        seen: names followed already.
        """
        expression = outputs[name]
        yield from self._function_reasons(expression, f" in view {view.name}")
        source_columns = self._layout(view.source).columns
        for inner in sorted(names_in(expression) - seen):
            if inner in outputs and inner != name and inner not in source_columns:
                yield from self._output_reasons(view, outputs, inner, seen | {name})
            elif inner in source_columns:
                yield from self._source_reasons(view, inner)
        if re.search(r"\bJOIN\b", view.select) and not names_in(expression) & source_columns.keys():
            yield f"column {quote_name(name)} of view {view.name} comes from a joined table"

    def _source_reasons(self, view: View, name: str) -> Iterator[str]:
        """Yield why a column of the table that a view reads may have another value for a repeated row."""
        if view.source == self.written.target:
            yield from self._target_reasons(quote_name(name), frozenset())
            return
        # The view reads the target of another view.
        for feeding in self.written.views:
            if feeding.target == view.source:
                yield from self._view_reasons(feeding, quote_name(name))

    def _function_reasons(self, expression: str, where: str = "") -> Iterator[str]:
        """Yield a reason for each function in an expression that is not deterministic. where: the reason's end."""
        for name in sorted({call for call in _CALL.findall(expression) if call and call.upper() not in _KEYWORDS}):
            if name not in self._nondeterministic:
                self._nondeterministic[name] = _is_nondeterministic(self.client, name)
            if self._nondeterministic[name]:
                yield f"{name}() returns another value each time{where}"


def _is_nondeterministic(client: Client, function: str) -> bool:
    """Return True when a function may return another value for the same row later, or the server does not list it."""
    # Newer servers name the column `deterministic`, older ones otherwise.
    columns = fetch(
        client,
        "SELECT name FROM system.columns WHERE database = 'system' AND table = 'functions' "
        "AND name LIKE '%deterministic'",
    )
    # Without such a column every function that is listed counts as deterministic.
    flag = columns[0][0] if columns else "1"
    # NULL (not known) counts as not deterministic, as does max() of no row: a function that is not listed.
    rows = fetch(
        client,
        f"SELECT max(coalesce({flag}, 0)) FROM system.functions "
        "WHERE name = {name:String} OR (case_insensitive AND lower(name) = lower({name:String}))",
        {"name": function},
    )
    return not rows[0][0]


def select_list(select: str) -> dict[str, str] | None:
    """Return a query's output columns: name -> expression; '*' stands for all columns of the source.

    select: a query as the server formats it. None for a query without FROM, or of several SELECTs at the top level
    (UNION and the like), which has no single list of columns.
    """
    tokens = list(top_level_tokens(select))
    words = [text.upper() for _, text in tokens]
    if "UNION" in words or "INTERSECT" in words or "EXCEPT" in words or "SELECT" not in words:
        return None
    start = tokens[words.index("SELECT")][0] + len("SELECT")
    if "FROM" not in words:
        return None
    end = tokens[words.index("FROM")][0]
    text = select[start:end].strip().removeprefix("DISTINCT ").strip()
    outputs: dict[str, str] = {}
    # An item is `expression AS name`, `name`, `table.name` or `*`.
    for item in split_at_commas(text):
        expression, _, alias = item.rpartition(" AS ")
        name = alias if expression else item.rpartition(".")[2]
        outputs["*" if name.startswith("*") else name.strip("`")] = expression or item
    return outputs
