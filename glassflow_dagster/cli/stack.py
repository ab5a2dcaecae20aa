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
@readable
def stack_up(data: Path, kafka_port: int, clickhouse_port: int) -> None:
    """Start both servers in the background; returns when both answer."""
    from glassflow_dagster.local.stack import up  # noqa: PLC0415

    for line in _stack_lines(up(data, kafka_port, clickhouse_port, report)):
        click.echo(line)


@stack.command("down")
@data_option
@readable
def stack_down(data: Path) -> None:
    """Stop both servers; their data stays."""
    from glassflow_dagster.local.stack import down  # noqa: PLC0415

    down(data, report)


@stack.command("status")
@data_option
@readable
def stack_status(data: Path) -> None:
    """Say which of the servers run; exit code 1 when one does not."""
    from glassflow_dagster.local.stack import status  # noqa: PLC0415

    found = status(data)
    for line in _stack_lines(found):
        click.echo(line)
    sys.exit(0 if found.running else 1)


def _stack_lines(found: Any) -> list[str]:
    return [
        f"{server.name:<11} {f'running at {server.address} (pid {server.pid})' if server.running else 'not running'}; "
        f"data: {server.data}; log: {server.log}"
        for server in (found.kafka, found.clickhouse)
    ]
