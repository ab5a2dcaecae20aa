"""A Distributed table: under which condition an insert into it may be repeated.

It keeps no rows and no tokens; each shard's local table does, and drops the piece of a repeated block that it has,
provided that the piece is the same. So a row must go to the same shard each time (a sharding key that gives one value
for one row), every local table must remember tokens, and the insert must be over when its answer comes: inserts.py
pins that. The tables of the shards are read through `clusterAllReplicas`, never changed. No cluster runs in the
embedded engine: the statements and what is made of their answers are tested, the behaviour is not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name, names_in, quote_name, quote_text
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target.token_window import (
    TokenWindow,
    is_replicated,
    own_setting,
    window_settings,
)
from glassflow_dagster.clickhouse.target.views import find_written_tables
from glassflow_dagster.config.sql import changing_function

_SIGN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|.", re.DOTALL)

_OTHERWISE = "or name the shards' own table, or say sink.delivery: at_least_once"


@dataclass(frozen=True)
class Distributed:
    """What a Distributed table stands for; an empty sharding key where it has none."""

    cluster: str
    database: str
    table: str
    sharding_key: str


@dataclass(frozen=True)
class LocalTable:
    """A local table on one server, as that server describes it; views: how many tables depend on it there."""

    host: str
    engine: str
    engine_full: str
    views: int
    partition_key: str = ""


def parse_distributed(engine_full: str) -> Distributed:
    """Read a Distributed table's description, as system.tables has it."""
    _, _, rest = engine_full.partition("(")
    cluster, database, table, *more = (_unquoted(argument) for argument in _arguments(rest))
    return Distributed(cluster, database, table, more[0] if more else "")


def local_tables_query(distributed: Distributed) -> str:
    """Ask every server of the cluster for the table that a Distributed table stands for."""
    return (
        "SELECT hostName(), engine, engine_full, length(dependencies_table), partition_key "
        f"FROM clusterAllReplicas({quote_text(distributed.cluster)}, system.tables) "
        f"WHERE database = {quote_text(distributed.database)} AND name = {quote_text(distributed.table)} "
        "SETTINGS skip_unavailable_shards = 0"
    )


def remember_tokens_everywhere(distributed: Distributed, engine: str) -> str:
    """Make the local tables of a cluster remember insert tokens."""
    return (
        f"ALTER TABLE {full_name(distributed.database, distributed.table)} ON CLUSTER "
        f"{quote_name(distributed.cluster)} MODIFY SETTING {window_settings(engine)}"
    )


def require_repeatable(client: Client, table: Table, filled: set[str]) -> None:
    """See that a repeated insert into a Distributed table doubles nothing; raises `TableProblem` with what to do.

    filled: the columns that the pipeline fills, always with the same values for a record.
    """
    distributed = parse_distributed(table.engine_full)
    servers = "SELECT shard_num, count() FROM system.clusters WHERE cluster = {cluster:String} GROUP BY 1"
    replicas = [count for _, count in fetch(client, servers, {"cluster": distributed.cluster})]
    local = [LocalTable(*row) for row in fetch(client, local_tables_query(distributed))]
    problems = [*_sharding_problems(distributed, table, filled, len(replicas))]
    problems += _local_problems(distributed, local, sum(replicas))
    problems += _partition_problems(distributed, local, table, filled)
    if find_written_tables(client, table.database, table.name).views:
        problems.append(f"has materialized views of its own; attach them to the shards' tables, {_OTHERWISE}")
    if problems:
        raise TableProblem("\n".join(f"sink.table: {table.database}.{table.name} {problem}" for problem in problems))


def _sharding_problems(distributed: Distributed, table: Table, filled: set[str], shards: int) -> Iterator[str]:
    if shards <= 1:
        return
    if changing_function(distributed.sharding_key):
        yield (
            f"has the sharding key {distributed.sharding_key}, which gives a row another shard when it is repeated; "
            f"use one of columns alone, such as cityHash64({quote_name(min(filled))}), {_OTHERWISE}"
        )
    names = names_in(distributed.sharding_key)
    for column in sorted(names & table.columns.keys() - filled):
        yield (
            f"has the sharding key {distributed.sharding_key}, but the pipeline does not fill column {column!r}, "
            f"whose default may differ when a row is repeated; map a field to it, {_OTHERWISE}"
        )


def _local_problems(distributed: Distributed, local: list[LocalTable], servers: int) -> Iterator[str]:
    name = f"{distributed.database}.{distributed.table}"
    if len(local) < servers:
        yield (
            f"stands for {name}, which {len(local)} of the {servers} servers of cluster {distributed.cluster} have; "
            f"create it on the others, {_OTHERWISE}"
        )
    for found in local:
        if not found.engine.endswith("MergeTree"):
            yield f"stands for {name}, which is a {found.engine} table on {found.host}; use MergeTree, {_OTHERWISE}"
        elif not _remembers(distributed, found):
            statement = remember_tokens_everywhere(distributed, found.engine)
            yield f"stands for {name}, which forgets insert tokens on {found.host}; run {statement}, {_OTHERWISE}"
        if found.views:
            yield (
                f"stands for {name}, which has materialized views on {found.host}, whose targets cannot be looked at "
                "from here; name the shards' own table, or say sink.delivery: at_least_once"
            )


def _partition_problems(
    distributed: Distributed, local: list[LocalTable], table: Table, filled: set[str]
) -> Iterator[str]:
    """Say which local table may put a repeated row into another partition, where its tokens do not count."""
    for found in local:
        unfilled = sorted(names_in(found.partition_key) & table.columns.keys() - filled)
        if unfilled or changing_function(found.partition_key):
            yield (
                f"stands for {distributed.database}.{distributed.table}, which is partitioned by {found.partition_key} "
                f"on {found.host}, and a repeated row may fall into another partition; partition by columns that the "
                f"pipeline fills, {_OTHERWISE}"
            )


def _remembers(distributed: Distributed, found: LocalTable) -> bool:
    """Whether the table's own settings suffice; other servers' defaults are not known here."""

    def own(name: str) -> int:
        return own_setting(found.engine_full, name) or 0

    if is_replicated(found.engine):
        blocks, seconds = own("replicated_deduplication_window"), own("replicated_deduplication_window_seconds")
    else:
        blocks, seconds = own("non_replicated_deduplication_window"), None
    return TokenWindow(distributed.database, distributed.table, found.engine, blocks, seconds).suffices


def _arguments(text: str) -> Iterator[str]:
    """Cut at the commas of the outermost level, up to the parenthesis that closes it."""
    depth, argument = 0, ""
    for sign in _SIGN.findall(text):
        if depth == 0 and sign in (",", ")"):
            yield argument.strip()
            argument = ""
            if sign == ")":
                return
            continue
        depth += {"(": 1, ")": -1}.get(sign, 0)
        argument += sign


def _unquoted(argument: str) -> str:
    if argument[:1] in ("'", "`"):
        return re.sub(r"\\(.)", r"\1", argument[1:-1])
    return argument
