"""The options of the commands that serve HTTP for a folder of definitions, and how such a command begins."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.cli.options import (
    create_table_option,
    log_format_option,
    pipelines_option,
    runner_options,
    state_option,
)
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.log import LogFormat
from glassflow_dagster.control.runners.settings import RunnerSettings
from glassflow_dagster.errors import GlassflowError

_MEBIBYTE = 1024 * 1024
_file = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need --token-file."
    ),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port; 0 for a free one."
    ),
    click.option("--token-file", metavar="FILE", type=_file, help="File of a token that clients must send."),
    click.option("--tls-cert", metavar="FILE", type=_file, help="Certificate chain in PEM format."),
    click.option("--tls-key", metavar="FILE", type=_file, help="Its unencrypted private key in PEM format."),
    click.option(
        "--max-request-bytes", type=click.IntRange(min=1024), default=_MEBIBYTE, show_default=True,
        help="Largest body of a request.",
    ),
    state_option,
    pipelines_option,
    create_table_option,
    log_format_option,
)  # fmt: skip


def needs_extra(extra: str, command: str, work: Callable[[], None]) -> None:
    """Do what imports packages of an extra; raises `GlassflowError`, with what to install, where one is missing."""
    try:
        work()
    except ModuleNotFoundError as error:
        raise GlassflowError(
            f"{command}: the package of {error.name} is not installed; run: pip install 'glassflow-dagster[{extra}]'"
        ) from None


def serving_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: add the options, which it gets as `serving` and `runner`.

    serving: the parameters of `serve.Options` but the runner. runner: the parameters of `build_runner`.
    """

    @wraps(command)
    def run(
        *args: Any, host: str, port: int, token_file: Path | None, tls_cert: Path | None, tls_key: Path | None,
        max_request_bytes: int, state: Path, pipelines: Path, create_table: bool, log_format: LogFormat | None,
        runner: RunnerSettings, **kwargs: Any,
    ) -> None:  # fmt: skip
        if bool(tls_cert) != bool(tls_key):
            raise click.UsageError("--tls-cert and --tls-key belong together; give both")
        serving: dict[str, Any] = {
            "pipelines": pipelines, "state": state, "host": host, "port": port, "token_file": token_file,
            "tls": (tls_cert, tls_key) if tls_cert and tls_key else None, "largest_request": max_request_bytes,
        }  # fmt: skip
        how = DriverOptions(state, create_table=create_table, log_format=log_format)
        command(*args, serving=serving, runner=(runner, how), **kwargs)

    decorated: Callable[..., None] = runner_options(run)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
