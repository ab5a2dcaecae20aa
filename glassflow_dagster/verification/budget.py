"""What a check may take of the server that a pipeline writes to, and what is said when that is not enough.

A check runs every quarter of an hour beside the pipeline's inserts and the users' own queries. So each of its queries
has limits on memory and time, and one that reaches a limit ends with `LimitReached`: not checked, which is neither red
nor green. How many rows are compared at once follows from the limit on memory; of more, only the keys of one share.
"""

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.errors import LIMIT_CODES, LimitReached, error_code, explain
from glassflow_dagster.config.model.checks import Checks
from glassflow_dagster.config.model.durations import format_duration
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

_MIB = 1024 * 1024

# Bytes of memory that the search for duplicates takes a row, measured on ClickHouse 26.9 with keys of 32 characters: 43
# where every key is there once, 145 where every key is there twice.
_BYTES_A_ROW = 200

# What a profile may have a query do at a limit instead of failing: give an answer from a part of the rows, which nobody
# could tell from a whole one.
_OVERFLOW_MODES = (
    "read_overflow_mode", "read_overflow_mode_leaf", "group_by_overflow_mode", "sort_overflow_mode",
    "result_overflow_mode", "timeout_overflow_mode", "timeout_overflow_mode_leaf", "set_overflow_mode",
    "join_overflow_mode", "transfer_overflow_mode", "distinct_overflow_mode",
)  # fmt: skip

_MEMORY, _TIME = 241, 159


@dataclass(frozen=True)
class Share:
    """One of `parts` shares of a table's keys, told by their hash; all rows of a key are in the same share."""

    parts: int = 1
    part: int = 0

    def condition(self, key: str) -> str:
        """Write a condition on the rows whose key is in the share. key: SQL."""
        return "1" if self.parts == 1 else f"sipHash64({key}) % {self.parts} = {self.part}"

    def __str__(self) -> str:
        """Write it for people."""
        return "all" if self.parts == 1 else f"1 in {self.parts:,}"


ALL_KEYS = Share()


def most_rows(checks: Checks) -> int:
    """Give how many rows a check compares at once."""
    return max(1, checks.max_memory_mib * _MIB // _BYTES_A_ROW)


def choose_share(rows: int, checks: Checks) -> Share:
    """Choose the share of so many rows that a check compares: all of them, or one drawn by lot.

    Drawn anew each time: what one share does not show another one will.
    """
    parts = math.ceil(rows / most_rows(checks)) or 1
    return Share(parts, secrets.randbelow(parts))


def connect_within_limits(config: PipelineConfig) -> Client:
    """Open a client whose queries have the limits of `checks`; raises what `connect` and `set_limits` raise."""
    client = connect(config.sink.connection_params)
    set_limits(client, config.checks)
    return client


def set_limits(client: Client, checks: Checks) -> None:
    """Limit all queries of a client from now on. A lower limit of the user's profile stays.

    A profile that lets nothing be changed keeps its own limits. Raises `LimitReached` where it cuts answers short.
    """
    memory = checks.max_memory_mib * _MIB
    limits = {
        "max_memory_usage": memory,
        # What is beyond half of the memory goes to the server's disk, so that merging it has the other half.
        "max_bytes_before_external_group_by": memory // 2,
        "max_bytes_before_external_sort": memory // 2,
        "max_execution_time": math.ceil(checks.max_query_time.total_seconds()),
    }
    for name, limit in limits.items():
        setting = client.server_settings.get(name)
        if setting is not None and not setting.readonly:
            client.set_client_setting(name, min(limit, int(float(setting.value)) or limit))
    for name in _OVERFLOW_MODES:
        setting = client.server_settings.get(name)
        if setting is None or setting.value == "throw":
            continue
        if setting.readonly:
            raise LimitReached(
                f"the user's profile has {name} = {setting.value}, by which answers may leave out rows without saying "
                f"so; set it to throw in the profile"
            )
        client.set_client_setting(name, "throw")


@contextmanager
def limits_told(checks: Checks) -> Iterator[None]:
    """Raise `LimitReached`, with the remedy, in place of the error of a query that a limit has ended."""
    try:
        yield
    except GlassflowError as error:
        ended = _ended_by_limit(error)
        if ended is None:
            raise
        raise LimitReached(
            f"ClickHouse ended a query at a limit ({explain(ended)}); {_remedy(ended, checks)}"
        ) from error


def _ended_by_limit(error: BaseException) -> BaseException | None:
    cause = error.__cause__
    while cause is not None and error_code(cause) is None:
        cause = cause.__cause__
    return cause if cause is not None and error_code(cause) in LIMIT_CODES else None


def _remedy(error: BaseException, checks: Checks) -> str:
    code = error_code(error)
    if code == _MEMORY:
        return f"raise checks.max_memory_mib ({checks.max_memory_mib:,}), or the profile's or server's own limit"
    if code == _TIME:
        return f"raise checks.max_query_time ({format_duration(checks.max_query_time)}), or the profile's own limit"
    return "raise the limit in the user's profile or quota, or make room on the server's disk"
