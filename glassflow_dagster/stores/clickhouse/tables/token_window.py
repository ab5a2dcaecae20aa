"""Token windows: how many insert tokens a table remembers (its `*deduplication_window` settings).

Without a window ClickHouse silently ignores insert tokens: a repeated batch would double its rows, and a view's target
without a window would double its aggregates.
"""

import re
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.errors import AccessDenied, TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import full_name, on_cluster
from glassflow_dagster.stores.clickhouse.layout import is_replicated
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.tables.views import find_written_tables

# Number of blocks that a table remembers. At most one batch is repeated, and its blocks stay below half of this, so one
# other pipeline's batch of the same size fits beside it. A block's entry costs the server some 100 bytes.
TOKENS_KEPT = 10_000

# How many times as many tokens as are needed now a user is told to let a table keep: the batch may need more later.
SPARE = 8

# Replicated tables forget by age too: after an outage of a long weekend a repeated batch must not double rows.
TOKENS_KEPT_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class TokenWindow:
    """The number of blocks whose tokens a table remembers, and for how many seconds (None: without limit)."""

    database: str
    table: str
    engine: str
    blocks: int
    seconds: int | None

    @property
    def suffices(self) -> bool:
        """True when a repeated batch is certain to find its tokens."""
        return self.blocks >= TOKENS_KEPT and (self.seconds is None or self.seconds >= TOKENS_KEPT_SECONDS)


class NoTokenWindow(TableProblem):
    """The table's engine has no token window; `reason` is the problem alone, the text has the remedy, too."""

    def __init__(self, database: str, table: str, engine: str) -> None:
        self.reason = no_token_window_reason(database, table, engine)
        super().__init__(unsupported_engine_reason(database, table, engine))


def window_settings(engine: str, blocks: int = TOKENS_KEPT, seconds: int = TOKENS_KEPT_SECONDS) -> str:
    """Return the table settings that give a table of this engine a token window of so many blocks.

    seconds: how long a replicated table keeps a token.
    """
    if is_replicated(engine):
        return f"replicated_deduplication_window = {blocks}, replicated_deduplication_window_seconds = {seconds}"
    return f"non_replicated_deduplication_window = {blocks}"


def token_window_statement(window: TokenWindow, blocks: int = TOKENS_KEPT, cluster: str | None = None) -> str:
    """Return the ALTER TABLE statement that gives a table room for so many tokens; it covers later inserts only.

    window: the one that the table has, of which neither the number nor the time becomes less.
    cluster: for ON CLUSTER, since table settings, unlike columns, are not replicated.
    """
    name = f"{full_name(window.database, window.table)}{on_cluster(cluster)}"
    blocks, seconds = max(window.blocks, blocks), max(window.seconds or 0, TOKENS_KEPT_SECONDS)
    return f"ALTER TABLE {name} MODIFY SETTING {window_settings(window.engine, blocks, seconds)}"


def keep_more_tokens(client: Client, database: str, table: str, blocks: int, cluster: str | None = None) -> None:
    """Enlarge the token windows of a table and its views' targets to at least `blocks`; known tokens are kept.

    Raises `AccessDenied` with the statement to run where the user may not alter the table.
    """
    for table_id in find_written_tables(client, database, table).table_ids:
        window = read_window(client, *table_id)
        if window.blocks < blocks:
            execute(client, token_window_statement(window, blocks, cluster))


def keep_more_tokens_if_allowed(
    client: Client, database: str, table: str, blocks: int, cluster: str | None = None
) -> None:
    """Enlarge the token windows as `keep_more_tokens`, or as a user without the right `require_more_tokens`."""
    try:
        keep_more_tokens(client, database, table, blocks, cluster)
    except AccessDenied:
        require_more_tokens(client, database, table, blocks, cluster)


def require_more_tokens(client: Client, database: str, table: str, blocks: int, cluster: str | None = None) -> None:
    """Raise `TableProblem` with the statement to run unless a table and its views' targets keep `blocks` tokens.

    For a table whose window the pipeline must not change. Half of them suffice: the other half is for the batch of
    another pipeline, without which the tokens of this one are safe.
    """
    for table_id in find_written_tables(client, database, table).table_ids:
        window = read_window(client, *table_id)
        if window.blocks < blocks // 2:
            statement = token_window_statement(window, SPARE * blocks, cluster)
            raise TableProblem(too_few_tokens_reason(".".join(table_id), window.blocks, statement))


def too_few_tokens_reason(table: str, blocks: int, statement: str) -> str:
    """Return why a batch of so many inserts ends before one of them. blocks: that the table keeps."""
    return (
        f"{table} keeps {blocks} insert tokens, and a batch needs more, so a repeated batch would duplicate rows; run "
        f"{statement}, then start the pipeline again, which continues the batch. A larger sink.max_batch_size makes "
        "fewer inserts of later batches"
    )


def ensure_tokens_kept(client: Client, database: str, table: str, cluster: str | None = None) -> None:
    """Enlarge a table's deduplication window where it is off or remembers too few insert tokens.

    Without the window ClickHouse would insert a repeated block again.

    Raises `TableProblem` for an engine without token windows, and `AccessDenied` with the statement to run where the
    user may not alter the table.
    """
    window = read_window(client, database, table)
    if window.suffices:
        return
    statement = token_window_statement(window, cluster=cluster)
    execute(client, statement)
    if not read_window(client, database, table).suffices:
        raise TableProblem(
            f"{database}.{table} still keeps no insert tokens after: {statement}; find out what resets the setting"
        )


def may_be_partitioned(client: Client, database: str, table: str) -> bool:
    """Return True when the table or a view's target has a partition key, which splits a block into one per partition.

    True for a Distributed table as well: its shards' keys are not known here.
    """
    query = (
        "SELECT partition_key != '' OR engine = 'Distributed' FROM system.tables "
        "WHERE database = {database:String} AND name = {name:String}"
    )
    table_ids = find_written_tables(client, database, table).table_ids
    return any(flag for db, name in table_ids for (flag,) in fetch(client, query, {"database": db, "name": name}))


def read_window(client: Client, database: str, table: str) -> TokenWindow:
    """Return a table's token window; raises `NoTokenWindow` for an engine without, `TableProblem` for no table."""
    tables = fetch(
        client,
        "SELECT engine, engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}",
        {"database": database, "name": table},
    )
    if not tables:
        raise TableProblem(
            f"{database}.{table} does not exist or is not visible, but a materialized view writes to it; create it, "
            "or grant SHOW TABLES on it"
        )
    engine, engine_full = tables[0]
    if not engine.endswith("MergeTree"):
        raise NoTokenWindow(database, table, engine)
    if not is_replicated(engine):
        blocks = _setting(client, engine_full, "merge_tree_settings", "non_replicated_deduplication_window")
        return TokenWindow(database, table, engine, blocks, None)
    blocks = _setting(client, engine_full, "replicated_merge_tree_settings", "replicated_deduplication_window")
    seconds = _setting(
        client, engine_full, "replicated_merge_tree_settings", "replicated_deduplication_window_seconds"
    )  # fmt: skip
    return TokenWindow(database, table, engine, blocks, seconds)


def unsupported_engine_reason(database: str, table: str, engine: str) -> str:
    """Return why an engine without a token window is rejected, with the remedy."""
    reason = no_token_window_reason(database, table, engine)
    if is_view(engine):
        return f"{reason}; name the table behind it instead"
    return f"{reason}; use a table of the MergeTree family, or set sink.delivery: at_least_once"


def no_token_window_reason(database: str, table: str, engine: str) -> str:
    """Return the problem of an engine without a token window, without a remedy."""
    return f"{database}.{table} is a {engine} table, which does not recognise a repeated insert"


def is_view(engine: str) -> bool:
    """Return True for the engine of a view."""
    return engine.endswith("View")


def own_setting(engine_full: str, name: str) -> int | None:
    """Return a numeric setting from a table's `engine_full`; None when the table does not set it."""
    match = re.search(rf"\b{name} = '?(\d+)", engine_full)
    return int(match[1]) if match else None


def _setting(client: Client, engine_full: str, defaults: str, name: str) -> int:
    """Return a table's setting: its own, else the server's default from system.`defaults`; 0 where that is hidden."""
    own = own_setting(engine_full, name)
    if own is not None:
        return own
    query = f"SELECT toUInt64(value) FROM system.{defaults} WHERE name = {{name:String}}"
    try:
        return int(fetch(client, query, {"name": name})[0][0])
    except AccessDenied:
        # The caller then sets the table's own setting.
        return 0
