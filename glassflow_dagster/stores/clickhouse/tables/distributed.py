"""Distributed tables: the conditions under which an insert may be repeated without doubling rows.

A Distributed table stores neither rows nor insert tokens. Each shard's local table does, and drops its part of a
repeated block, provided that the part is the same. So a row must go to the same shard each time (a deterministic
sharding key), every local table must remember tokens, and the insert must be complete when it is confirmed: the
settings in `inserts/insert.py` ensure that. The shards' tables are read through `clusterAllReplicas`, never changed.
The embedded engine runs no cluster: the statements and the evaluation of their results are tested, the behaviour of a
cluster is not.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.sql import changing_function
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import full_name, names_in, quote_name, quote_text
from glassflow_dagster.stores.clickhouse.layout import is_replicated
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.clickhouse.tables.token_window import (
    SPARE,
    TOKENS_KEPT,
    TokenWindow,
    own_setting,
    too_few_tokens_reason,
    window_settings,
)
from glassflow_dagster.stores.clickhouse.tables.views import find_written_tables

# A text, a quoted name, or any other character.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|.", re.DOTALL)

_OTHERWISE = "or name the shards' own table, or set sink.delivery: at_least_once"


@dataclass(frozen=True)
class Distributed:
    """The engine arguments of a Distributed table: its cluster and local table, and its sharding key or ''."""

    cluster: str
    database: str
    table: str
    sharding_key: str


@dataclass(frozen=True)
class LocalTable:
    """A shard's local table as its server describes it; views: the number of views that read it there."""

    host: str
    engine: str
    engine_full: str
    views: int
    partition_key: str = ""


def parse_distributed(engine_full: str) -> Distributed:
    """Return the parsed `engine_full`: Distributed(cluster, database, table[, sharding key[, further arguments]])."""
    _, _, arguments = engine_full.partition("(")
    cluster, database, table, *optional = (_unquoted(argument) for argument in _arguments(arguments))
    return Distributed(cluster, database, table, sharding_key=optional[0] if optional else "")


def local_tables_query(distributed: Distributed) -> str:
    """Return the SELECT of a `LocalTable` row from each server of the cluster."""
    return (
        "SELECT hostName(), engine, engine_full, length(dependencies_table), partition_key "
        f"FROM clusterAllReplicas({quote_text(distributed.cluster)}, system.tables) "
        f"WHERE database = {quote_text(distributed.database)} AND name = {quote_text(distributed.table)} "
        "SETTINGS skip_unavailable_shards = 0"
    )


def cluster_token_window_statement(distributed: Distributed, engine: str, blocks: int = TOKENS_KEPT) -> str:
    """Return the ALTER TABLE statement that gives a cluster's local tables a token window of so many blocks."""
    return (
        f"ALTER TABLE {full_name(distributed.database, distributed.table)} ON CLUSTER "
        f"{quote_name(distributed.cluster)} MODIFY SETTING {window_settings(engine, blocks)}"
    )


def require_repeatable(client: Client, table: Table, filled: set[str], path: str) -> None:
    """Raise `TableProblem`, with the remedies, when a repeated insert into a Distributed table may double rows.

    filled: the columns that the pipeline fills, always with the same values for a record.
    path: of the table in the definition, for the error.
    """
    distributed = parse_distributed(table.engine_full)
    servers = "SELECT shard_num, count() FROM system.clusters WHERE cluster = {cluster:String} GROUP BY 1"
    servers_by_shard = [count for _, count in fetch(client, servers, {"cluster": distributed.cluster})]
    local = [LocalTable(*row) for row in fetch(client, local_tables_query(distributed))]
    problems = [*_sharding_problems(distributed, table, filled, shards=len(servers_by_shard))]
    problems += _local_problems(distributed, local, servers=sum(servers_by_shard))
    problems += _partition_problems(distributed, local, table, filled)
    if find_written_tables(client, table.database, table.name).views:
        problems.append(f"has its own materialized views; attach them to the shards' tables, {_OTHERWISE}")
    if problems:
        raise TableProblem("\n".join(f"{path}: {table.full_name} {problem}" for problem in problems))


def require_more_tokens_on_shards(client: Client, database: str, table: str, blocks: int) -> None:
    """Raise `TableProblem` with the statement to run unless the local tables of a Distributed table keep enough tokens.

    blocks: see `require_more_tokens_of`.
    """
    query = "SELECT engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    for (engine_full,) in fetch(client, query, {"database": database, "name": table}):
        distributed = parse_distributed(engine_full)
        local = [LocalTable(*row) for row in fetch(client, local_tables_query(distributed))]
        require_more_tokens_of(distributed, local, blocks)


def require_more_tokens_of(distributed: Distributed, local: Iterable[LocalTable], blocks: int) -> None:
    """Raise `TableProblem` unless each of the local tables keeps half of `blocks` insert tokens.

    The other half is for the batch of another pipeline, without which the tokens of this one are safe.
    """
    for shard in local:
        window = _window_of(distributed, shard)
        if window.blocks < blocks // 2:
            name = f"{distributed.database}.{distributed.table} on {shard.host}"
            statement = cluster_token_window_statement(distributed, shard.engine, SPARE * blocks)
            raise TableProblem(too_few_tokens_reason(name, window.blocks, statement))


def _sharding_problems(distributed: Distributed, table: Table, filled: set[str], shards: int) -> Iterator[str]:
    """Yield why the sharding key may send a repeated row to another shard; with a single shard nothing.

    filled: the columns that the pipeline fills.
    shards: their number.
    """
    if shards <= 1:
        return
    if changing_function(distributed.sharding_key):
        yield (
            f"has the sharding key {distributed.sharding_key}, which may send a repeated row to another shard; use "
            f"one that reads columns only, such as cityHash64({quote_name(min(filled))}), {_OTHERWISE}"
        )
    names = names_in(distributed.sharding_key)
    for column in sorted(names & table.columns.keys() - filled):
        yield (
            f"has the sharding key {distributed.sharding_key}, but the pipeline does not fill column {column!r}, "
            f"whose default may differ when a row is repeated; map a field to it, {_OTHERWISE}"
        )


def _local_problems(distributed: Distributed, local: list[LocalTable], servers: int) -> Iterator[str]:
    """Yield which local tables are missing, forget insert tokens, or have views.

    local: the local tables that exist.
    servers: the number of the cluster's servers, each of which must have one.
    """
    name = f"{distributed.database}.{distributed.table}"
    if len(local) < servers:
        yield (
            f"refers to {name}, which exists on {len(local)} of the {servers} servers of cluster "
            f"{distributed.cluster}; create it on the rest, {_OTHERWISE}"
        )
    for shard in local:
        if not shard.engine.endswith("MergeTree"):
            yield f"refers to {name}, which is a {shard.engine} table on {shard.host}; use MergeTree, {_OTHERWISE}"
        elif not _remembers_tokens(distributed, shard):
            statement = cluster_token_window_statement(distributed, shard.engine)
            yield f"refers to {name}, which keeps no insert tokens on {shard.host}; run {statement}, {_OTHERWISE}"
        if shard.views:
            yield (
                f"refers to {name}, which has materialized views on {shard.host}, whose targets cannot be inspected "
                "from here; name the shards' own table, or set sink.delivery: at_least_once"
            )


def _partition_problems(
    distributed: Distributed, local: list[LocalTable], table: Table, filled: set[str]
) -> Iterator[str]:
    """Yield which local tables may put a repeated row into another partition, where its token is not known."""
    for shard in local:
        unfilled = sorted(names_in(shard.partition_key) & table.columns.keys() - filled)
        if unfilled or changing_function(shard.partition_key):
            yield (
                f"refers to {distributed.database}.{distributed.table}, which is partitioned by {shard.partition_key} "
                f"on {shard.host}, and a repeated row may fall into another partition; partition by columns that the "
                f"pipeline fills, {_OTHERWISE}"
            )


def _remembers_tokens(distributed: Distributed, shard: LocalTable) -> bool:
    """Return True when the table's own settings give it a sufficient token window; server defaults are unknown here."""
    return _window_of(distributed, shard).suffices


def _window_of(distributed: Distributed, shard: LocalTable) -> TokenWindow:
    """Return the token window that the table's own settings give it."""

    def own(name: str) -> int:
        return own_setting(shard.engine_full, name) or 0  # not set: the server's default, which is unknown

    if is_replicated(shard.engine):
        blocks, seconds = own("replicated_deduplication_window"), own("replicated_deduplication_window_seconds")
    else:
        blocks, seconds = own("non_replicated_deduplication_window"), None
    return TokenWindow(distributed.database, distributed.table, shard.engine, blocks, seconds)


def _arguments(text: str) -> Iterator[str]:
    """Yield an argument list's items, split at top-level commas, up to its closing parenthesis.

    text: what follows the opening parenthesis.
    """
    depth, argument = 0, ""
    for lexeme in _TOKEN.findall(text):
        if depth == 0 and lexeme in (",", ")"):
            yield argument.strip()
            argument = ""
            if lexeme == ")":
                return
            continue
        depth += {"(": 1, ")": -1}.get(lexeme, 0)
        argument += lexeme


def _unquoted(argument: str) -> str:
    """Return an engine argument without quotes and escapes."""
    if argument[:1] in ("'", "`"):
        return re.sub(r"\\(.)", r"\1", argument[1:-1])
    return argument
