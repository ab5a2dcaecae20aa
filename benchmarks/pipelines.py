"""Pipelines under measurement: their definitions, their runs, and their batches in the ledger."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from clickhouse_connect.driver.client import Client

from benchmarks.events import COLUMNS
from benchmarks.processes import LOG_TAIL, Memory
from benchmarks.stack import PASSWORD, USER, Stack


def dedup_definition(
    pipeline: str, topic: str, columns: Mapping[str, tuple[str, str]] = COLUMNS, **sink: Any
) -> dict[str, Any]:
    """Return a definition that deduplicates a topic by `id` into a table named after the pipeline.

    columns: field -> its type, and its column's. sink: more keys of the sink. The addresses of broker and ClickHouse
    come from the environment.
    """
    return {
        "version": "v3",
        "pipeline_id": pipeline,
        "sources": [
            {
                "type": "kafka",
                "source_id": "events",
                "connection_params": {"brokers": ["127.0.0.1:9092"]},
                "topic": topic,
                "schema_fields": [{"name": name, "type": kind} for name, (kind, _) in columns.items()],
            }
        ],
        "transforms": [{"type": "dedup", "source_id": "events", "config": {"key": "id", "time_window": "24h"}}],
        "sink": {
            "type": "clickhouse",
            "connection_params": {
                "host": "127.0.0.1", "port": 8123, "database": "default", "username": "default", "password": "",
            },
            "table": pipeline,
            "create_table": {"order_by": "id"},
            "mapping": [{"name": n, "column_name": n, "column_type": column} for n, (_, column) in columns.items()],
            **sink,
        },
    }  # fmt: skip


def glassflow_definition(
    stack: Stack, table: str, topic: str, columns: Mapping[str, tuple[str, str]] = COLUMNS, **sink: Any
) -> dict[str, Any]:
    """Return the definition of `dedup_definition` for GlassFlow itself, which takes no address from the environment.

    GlassFlow demands keys that have a default here, and a password.
    """
    definition = dedup_definition(table, topic, columns, **sink)
    definition |= {"pipeline_id": table.replace("_", "-"), "name": table}
    source, target = definition["sources"][0], definition["sink"]
    source["connection_params"] = {"brokers": [stack.brokers], "protocol": "PLAINTEXT", "mechanism": "NO_AUTH"}
    source["consumer_group_initial_offset"] = "earliest"
    del target["create_table"]
    target["connection_params"] |= {
        "port": str(stack.clickhouse_native_port),
        "http_port": str(stack.clickhouse_port),
        "username": USER,
        "password": PASSWORD,
        "secure": False,
    }
    return definition


def create_peer_table(
    client: Client, table: str, columns: Mapping[str, tuple[str, str]] = COLUMNS, order_by: str = "id"
) -> None:
    """Create the table that this project would create, for a program that does not."""
    column_list = ", ".join(f"{name} {column}" for name, (_, column) in columns.items())
    client.command(f"CREATE TABLE {table} ({column_list}) ENGINE = MergeTree ORDER BY {order_by}")


def write_definition(folder: Path, definition: dict[str, Any]) -> Path:
    """Write a definition to a file named after its pipeline."""
    file = folder / f"{definition['pipeline_id']}.yaml"
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return file


@dataclass(frozen=True)
class Batch:
    """A micro-batch from the ledger: records read, milliseconds from its trigger to its ledger row, and its end."""

    read: int
    milliseconds: int
    ended_ms: int

    @property
    def begun_ms(self) -> int:
        """Its trigger, milliseconds since 1970."""
        return self.ended_ms - self.milliseconds


def batches(client: Client, pipeline: str, database: str = "default") -> list[Batch]:
    """Return the pipeline's batches that read records, in order; none before the ledger exists."""
    if not client.query(f"EXISTS {database}.glassflow_ledger").result_rows[0][0]:
        return []
    rows = client.query(
        "SELECT read, toUnixTimestamp64Milli(inserted_at) - toUnixTimestamp64Milli(batch_time), "
        f"toUnixTimestamp64Milli(inserted_at) FROM {database}.glassflow_ledger "
        "WHERE pipeline_id = {pipeline:String} AND read > 0 ORDER BY batch_id",
        parameters={"pipeline": pipeline},
    ).result_rows
    return [Batch(*row) for row in rows]


def second_half(done: list[Batch]) -> float:
    """Return records a second from the end of the batch that passes half of all records to the end of the last batch.

    The JVM compiles its code during the first half.
    """
    total, seen = sum(batch.read for batch in done), 0
    for index, batch in enumerate(done[:-1]):
        seen += batch.read
        if seen >= total / 2:
            rest = sum(later.read for later in done[index + 1 :])
            return rest / ((done[-1].ended_ms - batch.ended_ms) / 1000)
    raise SystemExit("too few batches; send more events")


def run_to_the_end(
    stack: Stack, definition: Path, others: Mapping[str, int] | None = None
) -> tuple[dict[str, int], dict[str, float]]:
    """Run a pipeline until it has caught up; return its totals, and the memory of `driver` and the others in MiB.

    others: more process trees, by name.
    """
    command = [*stack.run_command(definition), "--until-caught-up"]
    with subprocess.Popen(command, env=stack.environment, stdout=subprocess.PIPE, text=True) as driver:
        memory = Memory({"driver": driver.pid, **(others or {})})
        memory.start()
        try:
            out, _ = driver.communicate()
        except BaseException:
            driver.terminate()
            raise
    peak = memory.stop()
    if driver.returncode:
        raise SystemExit(f"{definition.stem} did not finish")
    return json.loads(out.splitlines()[-1]), peak


@contextmanager
def running_pipeline(stack: Stack, definition: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a pipeline in the background while the block runs; at the end it finishes its batch and stops."""
    log = definition.with_suffix(".log")
    with log.open("w") as file:
        driver = subprocess.Popen(stack.run_command(definition), env=stack.environment, stdout=file, stderr=file)
    try:
        yield driver
    finally:
        driver.terminate()
        driver.wait()
    if driver.returncode:
        raise SystemExit(f"{definition.stem} failed:\n{log.read_text(encoding='utf-8')[-LOG_TAIL:]}")


def visible_rows(client: Client, table: str) -> int:
    """Return the number of visible rows from system.parts: cheap, and 0 before the table exists."""
    rows_query = "SELECT sum(rows) FROM system.parts WHERE active AND table = {table:String}"
    return int(client.query(rows_query, parameters={"table": table}).result_rows[0][0])


def require_one_row_each(client: Client, table: str, keys: int) -> None:
    """Exit unless a table has exactly one row per key."""
    found = client.query(f"SELECT count(), uniqExact(id) FROM {table}").result_rows[0]
    if found != (keys, keys):
        raise SystemExit(f"{table}: {keys:,} keys were sent, the table has (rows, keys) {found}")


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float, what: str) -> None:
    """Wait for a condition that a running process fulfils; exit when the process ends or time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"the process ended before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"after {seconds:g} s still not {what}")
        time.sleep(0.05)
