"""The tables that an insert writes to: the target, and those that chains of materialized views write to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import fetch

TableId = tuple[str, str]  # database and table

_NAME = r"(?:`((?:[^`\\]|\\.)+)`|([A-Za-z_0-9]+))"
# The view's own name; quoted, it may contain " TO ".
_VIEW = r"(?:`(?:[^`\\]|\\.)+`|[A-Za-z_0-9]+)"
_VIEW_BEGINS = re.compile(rf"^CREATE MATERIALIZED VIEW {_VIEW}\.{_VIEW}")
_VIEW_TARGET = re.compile(rf".*? TO {_NAME}\.{_NAME}", re.DOTALL)


@dataclass(frozen=True)
class View:
    """A materialized view: its id, the table that it reads, the table that it writes to, and its query."""

    table_id: TableId
    source: TableId
    target: TableId
    select: str

    @property
    def name(self) -> str:
        """The view's name, as `database.view`."""
        return ".".join(self.table_id)


@dataclass(frozen=True)
class WrittenTables:
    """All tables that an insert into `target` writes to.

    views: the views that the insert triggers, in breadth-first order.
    hidden: dependent views that the user cannot see.
    """

    target: TableId
    views: tuple[View, ...]
    hidden: tuple[TableId, ...] = ()

    @property
    def table_ids(self) -> tuple[TableId, ...]:
        """All written tables: the target first, each table once."""
        return tuple(dict.fromkeys((self.target, *(view.target for view in self.views))))


def find_written_tables(client: Client, database: str, table: str) -> WrittenTables:
    """Return the target and all views that it feeds, directly or through other views; raises what `fetch` raises."""
    unvisited, seen = [(database, table)], set()
    views: list[View] = []
    hidden: list[TableId] = []
    while unvisited:
        table_id = unvisited.pop(0)
        if table_id in seen:
            continue
        seen.add(table_id)
        direct = list(_views_of(client, table_id))
        views += direct
        # system.tables lists a table or view only where the user may see it.
        hidden += [name for name in _dependents(client, table_id) if not has_table(client, *name)]
        unvisited += [view.target for view in direct]
    return WrittenTables((database, table), tuple(views), tuple(hidden))


def view_target(create_query: str, uuid: str, database: str, view: str, siblings: set[str]) -> TableId:
    """Return the table that a materialized view writes to: the one after TO, else its inner table.

    siblings: the names of inner tables in the view's database. Where the view's own is named by its UUID
    (`.inner_id.UUID`), it is among them; otherwise it is `.inner.VIEW`, as in a database of engine Ordinary.
    """
    # Only the part between the view's name and its query, both of which may contain " TO ".
    match = _VIEW_TARGET.match(_VIEW_BEGINS.sub("", create_query).partition(" AS SELECT ")[0])
    if match:
        names = [
            re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
            for quoted, plain in (match.group(1, 2), match.group(3, 4))
        ]
        return names[0], names[1]
    inner = f".inner_id.{uuid}"
    return database, inner if inner in siblings else f".inner.{view}"


def views_into(client: Client, table_id: TableId) -> list[TableId]:
    """Return the visible materialized views that write to a table, whatever table they read."""
    rows = fetch(
        client,
        "SELECT database, name, create_table_query, toString(uuid) FROM system.tables WHERE engine = "
        "'MaterializedView'",
    )
    return [
        (database, name)
        for database, name, query, uuid in rows
        # Of all inner tables only this one matters.
        if view_target(query, uuid, database, name, siblings={table_id[1]}) == table_id
    ]


def _views_of(client: Client, table_id: TableId) -> Iterator[View]:
    """Yield the visible materialized views that read a table."""
    rows = fetch(
        client,
        "SELECT v.database, v.name, v.create_table_query, toString(v.uuid), v.as_select FROM system.tables AS v "
        "WHERE v.engine = 'MaterializedView' AND (v.database, v.name) IN ("
        "SELECT d, n FROM system.tables ARRAY JOIN dependencies_database AS d, dependencies_table AS n "
        "WHERE database = {database:String} AND name = {name:String}) ORDER BY 1, 2",
        {"database": table_id[0], "name": table_id[1]},
    )
    for database, name, create_query, uuid, select in rows:
        siblings = fetch(
            client,
            "SELECT name FROM system.tables WHERE database = {database:String} AND startsWith(name, '.inner')",
            {"database": database},
        )
        target = view_target(create_query, uuid, database, name, siblings={sibling for (sibling,) in siblings})
        yield View((database, name), table_id, target, select)


def _dependents(client: Client, table_id: TableId) -> list[TableId]:
    """Return everything that reads a table by system.tables, whether the user may see it or not."""
    rows = fetch(
        client,
        "SELECT d, n FROM system.tables ARRAY JOIN dependencies_database AS d, dependencies_table AS n "
        "WHERE database = {database:String} AND name = {name:String} ORDER BY 1, 2",
        {"database": table_id[0], "name": table_id[1]},
    )
    return [(database, name) for database, name in rows]
