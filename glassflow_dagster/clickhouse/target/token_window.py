"""Whether a table remembers insert tokens.

Without a window ClickHouse ignores tokens in silence: a replayed batch would double its rows, and a view's target
without one doubles its aggregates.
"""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import AccessDenied, TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name, on_cluster
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.target.views import find_written_tables

# Blocks a table remembers. A replay goes back one batch, whose blocks stay below half of this, so one other pipeline's
# batch of the same size fits beside it; a block's entry costs the server some 100 bytes.
TOKENS_KEPT = 10_000

# Replicated tables forget by age too: an outage of a weekend and more must not turn a replay into doubled rows.
TOKENS_KEPT_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class TokenWindow:
    """What a table remembers: a number of blocks, and for replicated tables how many seconds (None: for ever)."""

    database: str
    table: str
    engine: str
    blocks: int
    seconds: int | None

    @property
    def suffices(self) -> bool:
        """Whether a replay finds its tokens."""
        return self.blocks >= TOKENS_KEPT and (self.seconds is None or self.seconds >= TOKENS_KEPT_SECONDS)


class WithoutTokens(TableProblem):
    """The engine has no window; `reason` says that alone, the error also what to do."""

    def __init__(self, database: str, table: str, engine: str) -> None:
        self.reason = recognises_no_repetition(database, table, engine)
        super().__init__(unsupported_engine(database, table, engine))


def is_replicated(engine: str) -> bool:
    """Whether an engine (or engine clause) keeps its tokens in Keeper, with an age of their own."""
    return engine.startswith(("Replicated", "Shared"))


def window_settings(engine: str, blocks: int = TOKENS_KEPT) -> str:
    """Write the settings that make a table of this engine remember insert tokens."""
    if is_replicated(engine):
        return (
            f"replicated_deduplication_window = {blocks}, "
            f"replicated_deduplication_window_seconds = {TOKENS_KEPT_SECONDS}"
        )
    return f"non_replicated_deduplication_window = {blocks}"


def remember_tokens(
    database: str, table: str, engine: str, blocks: int = TOKENS_KEPT, cluster: str | None = None
) -> str:
    """Make an existing table remember insert tokens; it does not cover blocks inserted before.

    A replica has its settings for itself, unlike its columns.
    """
    name = f"{full_name(database, table)}{on_cluster(cluster)}"
    return f"ALTER TABLE {name} MODIFY SETTING {window_settings(engine, blocks)}"


def keep_more_tokens(client: Client, database: str, table: str, blocks: int, cluster: str | None = None) -> None:
    """Let a table, and those behind its views, remember so many blocks; those they remember now are kept.

    Raises `AccessDenied` with the statement to run where the user may not alter the table.
    """
    for place in find_written_tables(client, database, table).places:
        window = read_window(client, *place)
        if window.blocks < blocks:
            execute(client, remember_tokens(*place, window.engine, blocks, cluster))


def ensure_tokens_kept(client: Client, database: str, table: str, cluster: str | None = None) -> None:
    """Switch a table's window on where it is off or too small.

    Raises `TableProblem` for an engine that knows no tokens, and `AccessDenied` with the statement to run where the
    user may not alter the table.
    """
    window = read_window(client, database, table)
    if window.suffices:
        return
    statement = remember_tokens(database, table, window.engine, cluster=cluster)
    execute(client, statement)
    if not read_window(client, database, table).suffices:
        raise TableProblem(
            f"{database}.{table} still forgets insert tokens after: {statement}; find out what resets the setting"
        )


def writes_partitions(client: Client, database: str, table: str) -> bool:
    """Whether a partition key may split a block, in the table or behind its views; each piece counts as a block.

    Of a Distributed table it is not known here, so it may.
    """
    query = (
        "SELECT partition_key != '' OR engine = 'Distributed' FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}"
    )
    places = find_written_tables(client, database, table).places
    return any(key for place in places for (key,) in fetch(client, query, {"database": place[0], "name": place[1]}))


def read_window(client: Client, database: str, table: str) -> TokenWindow:
    """Read a table's window; raises `TableProblem` for an engine that has none."""
    found = fetch(
        client,
        "SELECT engine, engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        {"database": database, "name": table},
    )
    if not found:
        raise TableProblem(
            f"{database}.{table} does not exist, or is not to be seen, but a materialized view writes to it; create "
            "it, or grant SHOW TABLES on it"
        )
    engine, engine_full = found[0]
    if not engine.endswith("MergeTree"):
        raise WithoutTokens(database, table, engine)
    if not is_replicated(engine):
        blocks = _setting(client, engine_full, "merge_tree_settings", "non_replicated_deduplication_window")
        return TokenWindow(database, table, engine, blocks, None)
    blocks = _setting(client, engine_full, "replicated_merge_tree_settings", "replicated_deduplication_window")
    seconds = _setting(
        client, engine_full, "replicated_merge_tree_settings", "replicated_deduplication_window_seconds"
    )  # fmt: skip
    return TokenWindow(database, table, engine, blocks, seconds)


def unsupported_engine(database: str, table: str, engine: str) -> str:
    """Say why an engine is refused, and what to do."""
    reason = recognises_no_repetition(database, table, engine)
    if is_view(engine):
        return f"{reason}; name the table behind it instead"
    return f"{reason}; use a table of the MergeTree family, or say sink.delivery: at_least_once"


def recognises_no_repetition(database: str, table: str, engine: str) -> str:
    """Say what is the matter with an engine that has no window."""
    return f"{database}.{table} is a {engine} table, which does not recognise a repeated insert"


def is_view(engine: str) -> bool:
    """Whether it is no table, but a query on one."""
    return engine.endswith("View")


def own_setting(engine_full: str, name: str) -> int | None:
    """Read a setting from a table's own description; None where that leaves it to the server."""
    match = re.search(rf"\b{name} = '?(\d+)", engine_full)
    return int(match[1]) if match else None


def _setting(client: Client, engine_full: str, defaults: str, name: str) -> int:
    """Read a table's setting: its own, or the server's default for such tables; 0 where the user may not see that."""
    own = own_setting(engine_full, name)
    if own is not None:
        return own
    query = f"SELECT toUInt64(value) FROM system.{defaults} WHERE name = {{name:String}}"
    try:
        return int(fetch(client, query, {"name": name})[0][0])
    except AccessDenied:
        # Then the table gets one of its own.
        return 0
