"""The tables that an insert writes to: the target, and those behind its materialized views and views of these."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.queries import fetch

Place = tuple[str, str]  # database and table

_NAME = r"(?:`((?:[^`\\]|\\.)+)`|([A-Za-z_0-9]+))"
# The view's own name may hold anything, within quotes.
_VIEW = r"(?:`(?:[^`\\]|\\.)+`|[A-Za-z_0-9]+)"
_VIEW_BEGINS = re.compile(rf"^CREATE MATERIALIZED VIEW {_VIEW}\.{_VIEW}")
_VIEW_TARGET = re.compile(rf".*? TO {_NAME}\.{_NAME}", re.DOTALL)


@dataclass(frozen=True)
class View:
    """A materialized view: its name, the table that it reads, the one that it writes to, and its query."""

    place: Place
    source: Place
    target: Place
    select: str

    @property
    def name(self) -> str:
        """The view's name for people."""
        return ".".join(self.place)


@dataclass(frozen=True)
class WrittenTables:
    """All tables that an insert into `target` writes to.

    views: in the order in which the insert reaches them. hidden: views that the user cannot see.
    """

    target: Place
    views: tuple[View, ...]
    hidden: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The target first, each table once."""
        return tuple(dict.fromkeys((self.target, *(view.target for view in self.views))))


def find_written_tables(client: Client, database: str, table: str) -> WrittenTables:
    """Follow the views of a table; raises what `fetch` raises."""
    waiting, seen = [(database, table)], set()
    views: list[View] = []
    hidden: list[Place] = []
    while waiting:
        place = waiting.pop(0)
        if place in seen:
            continue
        seen.add(place)
        found = list(_views_of(client, place))
        views += found
        hidden += [name for name in _dependents(client, place) if not _is_visible(client, name)]
        waiting += [view.target for view in found]
    return WrittenTables((database, table), tuple(views), tuple(hidden))


def view_target(create_query: str, uuid: str, database: str, view: str, siblings: set[str]) -> Place:
    """Find where a materialized view writes: the table after TO, or its hidden inner table."""
    match = _VIEW_TARGET.match(_VIEW_BEGINS.sub("", create_query).partition(" AS SELECT ")[0])
    if match:
        names = [
            re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
            for quoted, plain in (match.group(1, 2), match.group(3, 4))
        ]
        return names[0], names[1]
    inner = f".inner_id.{uuid}"
    return database, inner if inner in siblings else f".inner.{view}"


def views_into(client: Client, place: Place) -> list[Place]:
    """Find the visible materialized views that write to a table, whatever they read."""
    rows = fetch(
        client,
        "SELECT database, name, create_table_query, toString(uuid) FROM system.tables WHERE engine = "
        "'MaterializedView'",
    )
    return [
        (database, name)
        for database, name, query, uuid in rows
        if view_target(query, uuid, database, name, {place[1]}) == place
    ]


def _views_of(client: Client, place: Place) -> Iterator[View]:
    rows = fetch(
        client,
        "SELECT v.database, v.name, v.create_table_query, toString(v.uuid), v.as_select FROM system.tables AS v "
        "WHERE v.engine = 'MaterializedView' AND (v.database, v.name) IN ("
        "SELECT d, n FROM system.tables ARRAY JOIN dependencies_database AS d, dependencies_table AS n "
        "WHERE database = {database:String} AND name = {name:String}) ORDER BY 1, 2",
        {"database": place[0], "name": place[1]},
    )
    for database, name, create_query, uuid, select in rows:
        siblings = fetch(
            client,
            "SELECT name FROM system.tables WHERE database = {database:String} AND startsWith(name, '.inner')",
            {"database": database},
        )
        target = view_target(create_query, uuid, database, name, {sibling for (sibling,) in siblings})
        yield View((database, name), place, target, select)


def _dependents(client: Client, place: Place) -> list[Place]:
    rows = fetch(
        client,
        "SELECT d, n FROM system.tables ARRAY JOIN dependencies_database AS d, dependencies_table AS n "
        "WHERE database = {database:String} AND name = {name:String} ORDER BY 1, 2",
        {"database": place[0], "name": place[1]},
    )
    return [(database, name) for database, name in rows]


def _is_visible(client: Client, place: Place) -> bool:
    names = {"database": place[0], "name": place[1]}
    query = "SELECT 1 FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    return bool(fetch(client, query, names))
