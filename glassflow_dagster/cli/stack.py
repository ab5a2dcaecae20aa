"""The commands that start and stop the embedded servers."""

import sys
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.cli.options import data_option, exit_on_error, report, show


@click.group()
def stack() -> None:
    """Start and stop the embedded Kafka and ClickHouse, for development on one machine, and an object store."""


@stack.command("up")
@data_option
@click.option("--kafka-port", type=click.IntRange(1, 65535), default=9092, show_default=True)
@click.option("--clickhouse-port", type=click.IntRange(1, 65535), default=8123, show_default=True)
@click.option(
    "--native-port",
    type=click.IntRange(1, 65535),
    help="Port of ClickHouse's native protocol, for clickhouse-client; off by default.",
)
@click.option("--object-store", "with_store", is_flag=True, help="Also start an object store (S3), for --state s3a://.")
@click.option("--object-store-port", type=click.IntRange(1, 65535), default=7070, show_default=True)
@exit_on_error
def stack_up(
    data: Path, kafka_port: int, clickhouse_port: int, native_port: int | None, with_store: bool, object_store_port: int
) -> None:
    """Start the servers in the background and wait until they answer."""
    from glassflow_dagster.local.object_store import BUCKET, object_store_variables
    from glassflow_dagster.local.stack import up

    store_port = object_store_port if with_store else None
    for line in _stack_lines(up(data, kafka_port, clickhouse_port, report, native_port, store_port)):
        show(line)
    if store_port:
        exports = " ".join(f"{name}={value}" for name, value in object_store_variables(store_port).items())
        show(f"for state in the object store: export {exports} GLASSFLOW_STATE=s3a://{BUCKET}/state")


@stack.command("down")
@data_option
@exit_on_error
def stack_down(data: Path) -> None:
    """Stop the servers; their data is kept."""
    from glassflow_dagster.local.stack import down

    down(data, report)


@stack.command("status")
@data_option
@exit_on_error
def stack_status(data: Path) -> None:
    """Show which servers are running; exit code 1 when one is not."""
    from glassflow_dagster.local.stack import status

    stack_state = status(data)
    for line in _stack_lines(stack_state):
        show(line)
    sys.exit(0 if stack_state.running else 1)


def _stack_lines(stack_state: Any) -> list[str]:
    """Return a line for each server: its state, data folder and log file."""
    return [
        f"{server.name.removeprefix('the '):<12} {_state(server)}; data: {server.data}; log: {server.log}"
        for server in stack_state.servers
    ]


def _state(server: Any) -> str:
    """Return a server's state as text: not running, or its addresses and its process."""
    if not server.running:
        return "not running"
    native = f", native protocol at {server.native_address}" if server.native_address else ""
    return f"running at {server.address}{native} (pid {server.pid})"
