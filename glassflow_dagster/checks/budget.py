"""Limits on memory and time of the queries of checks, and the errors when a limit is reached.

A check runs every quarter of an hour beside the pipeline's inserts and the users' own queries. So each of its queries
has limits on memory and time. A check that reaches a limit ends with `LimitReached`: not checked, neither passed nor
failed. The memory limit determines how many rows are compared at once; of a larger table only a share of the keys is.
"""

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import LIMIT_CODES, LimitReached, error_code, explain

_MIB = 1024 * 1024

# Memory of the search for duplicates in bytes per row. Measured on ClickHouse 26.9 with keys of 32 characters: 43 when
# every key occurs once, 145 when every key occurs twice.
BYTES_A_ROW = 200

# Settings by which a user's profile may let a query at a limit return a partial result instead of an error, which could
# not be told from a complete one.
_OVERFLOW_MODES = (
    "read_overflow_mode", "read_overflow_mode_leaf", "group_by_overflow_mode", "sort_overflow_mode",
    "result_overflow_mode", "timeout_overflow_mode", "timeout_overflow_mode_leaf", "set_overflow_mode",
    "join_overflow_mode", "transfer_overflow_mode", "distinct_overflow_mode",
)  # fmt: skip

_MEMORY_LIMIT_EXCEEDED, _TIMEOUT_EXCEEDED = 241, 159  # error codes


@dataclass(frozen=True)
class Share:
    """Share number `part` of `parts` shares of a table's keys, by hash; all rows of a key are in the same share."""

    parts: int = 1
    part: int = 0

    def condition(self, key: str) -> str:
        """Return the SQL condition on rows whose key is in the share. key: SQL."""
        return "1" if self.parts == 1 else f"sipHash64({key}) % {self.parts} = {self.part}"

    def __str__(self) -> str:
        """Return the share for people: `all`, `1 in 8`."""
        return "all" if self.parts == 1 else f"1 in {self.parts:,}"


ALL_KEYS = Share()


def max_rows_at_once(checks: Checks) -> int:
    """Return the number of rows that a check may compare at once within its memory limit."""
    return max(1, checks.max_memory_mib * _MIB // BYTES_A_ROW)


def choose_share(rows: int, checks: Checks) -> Share:
    """Return the share of the keys of `rows` rows that a check compares: all of them, or a random one.

    It is drawn anew for each check, so that repeated checks cover all keys.
    """
    parts = math.ceil(rows / max_rows_at_once(checks)) or 1  # one share of an empty table
    return Share(parts, secrets.randbelow(parts))


def connect_within_limits(config: PipelineConfig) -> Client:
    """Open a client whose queries have the limits of `checks`; raises what `connect` and `set_limits` raise."""
    client = connect(config.sink.connection_params)
    set_limits(client, config.checks)
    return client


def set_limits(client: Client, checks: Checks) -> None:
    """Set the limits of `checks` on all later queries of a client. A lower limit of the user's profile stays.

    Read-only settings of the profile stay as well. Raises `LimitReached` when the profile makes queries return partial
    results at a limit and that cannot be changed.
    """
    memory = checks.max_memory_mib * _MIB
    limits = {
        "max_memory_usage": memory,
        # Spill to the server's disk at half of the memory, so that merging the spilled data has the other half.
        "max_bytes_before_external_group_by": memory // 2,
        "max_bytes_before_external_sort": memory // 2,
        "max_execution_time": math.ceil(checks.max_query_time.total_seconds()),
    }
    for name, limit in limits.items():
        setting = client.server_settings.get(name)
        if setting is not None and not setting.readonly:
            limit_of_profile = int(float(setting.value)) or limit  # 0 stands for no limit
            client.set_client_setting(name, min(limit, limit_of_profile))
    for name in _OVERFLOW_MODES:
        setting = client.server_settings.get(name)
        if setting is None or setting.value == "throw":
            continue
        if setting.readonly:
            raise LimitReached(
                f"the user's profile has {name} = {setting.value}, with which results may silently omit rows; set it "
                "to throw in the profile"
            )
        client.set_client_setting(name, "throw")


@contextmanager
def explaining_limits(checks: Checks) -> Iterator[None]:
    """Convert the error of a query that a limit has ended into `LimitReached` with the remedy; pass on other errors."""
    try:
        yield
    except GlassflowError as error:
        cause = _limit_error(error)
        if cause is None:
            raise
        raise LimitReached(
            f"ClickHouse ended a query at a limit ({explain(cause)}); {_remedy(cause, checks)}"
        ) from error


def _limit_error(error: BaseException) -> BaseException | None:
    """Return the first cause that is an error of ClickHouse, if its code is one of a limit."""
    cause = error.__cause__
    while cause is not None and error_code(cause) is None:
        cause = cause.__cause__
    return cause if cause is not None and error_code(cause) in LIMIT_CODES else None


def _remedy(error: BaseException, checks: Checks) -> str:
    """Return which limit to raise for an error at a limit: memory, time, or one that only the profile has."""
    code = error_code(error)
    if code == _MEMORY_LIMIT_EXCEEDED:
        return f"raise checks.max_memory_mib ({checks.max_memory_mib:,}), or the profile's or server's own limit"
    if code == _TIMEOUT_EXCEEDED:
        return f"raise checks.max_query_time ({format_duration(checks.max_query_time)}), or the profile's own limit"
    return "raise the limit in the user's profile or quota, or free space on the server's disk"
