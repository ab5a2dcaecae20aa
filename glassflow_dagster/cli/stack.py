"""The embedded stack's commands."""

import sys
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.cli.options import data_option, readable, report


@click.group()
def stack() -> None:
    """The embedded Kafka and ClickHouse, for a laptop."""


@stack.command("up")
@data_option
@click.option("--kafka-port", type=click.IntRange(1, 65535), default=9092, show_default=True)
@click.option("--clickhouse-port", type=click.IntRange(1, 65535), default=8123, show_default=True)
@click.option(
    "--native-port", type=click.IntRange(1, 65535), help="ClickHouse's native protocol, for clickhouse-client; off."
)
@readable
def stack_up(data: Path, kafka_port: int, clickhouse_port: int, native_port: int | None) -> None:
    """Start both servers in the background; returns when both answer."""
    from glassflow_dagster.local.stack import up

    for line in _stack_lines(up(data, kafka_port, clickhouse_port, report, native_port)):
        click.echo(line)


@stack.command("down")
@data_option
@readable
def stack_down(data: Path) -> None:
    """Stop both servers; their data stays."""
    from glassflow_dagster.local.stack import down

    down(data, report)


@stack.command("status")
@data_option
@readable
def stack_status(data: Path) -> None:
    """Say which of the servers run; exit code 1 when one does not."""
    from glassflow_dagster.local.stack import status

    found = status(data)
    for line in _stack_lines(found):
        click.echo(line)
    sys.exit(0 if found.running else 1)


def _stack_lines(found: Any) -> list[str]:
    return [f"{server.name:<11} {_state(server)}; data: {server.data}; log: {server.log}" for server in found.servers]


def _state(server: Any) -> str:
    if not server.running:
        return "not running"
    native = f", native protocol at {server.native_address}" if server.native_address else ""
    return f"running at {server.address}{native} (pid {server.pid})"
