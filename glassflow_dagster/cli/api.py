"""The command that serves the HTTP API."""

from pathlib import Path

import click

from glassflow_dagster.cli.options import (
    create_table_option,
    exit_on_error,
    log_format_option,
    pipelines_option,
    report,
    state_option,
)
from glassflow_dagster.driver.log import LogFormat
from glassflow_dagster.errors import GlassflowError

_MEBIBYTE = 1024 * 1024
_file = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need --token-file.")
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port; 0 for a free one.")
@click.option("--token-file", metavar="FILE", type=_file, help="File of a token that clients must send.")
@click.option("--tls-cert", metavar="FILE", type=_file, help="Certificate chain in PEM format.")
@click.option("--tls-key", metavar="FILE", type=_file, help="Its unencrypted private key in PEM format.")
@click.option(
    "--max-request-bytes", type=click.IntRange(min=1024), default=_MEBIBYTE, show_default=True,
    help="Largest body of a request.",
)  # fmt: skip
@state_option
@pipelines_option
@create_table_option
@log_format_option
@exit_on_error
def api(
    host: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_request_bytes: int,
    state: Path,
    pipelines: Path,
    create_table: bool,
    log_format: LogFormat | None,
) -> None:
    """Serve GlassFlow's HTTP API for the definitions of a folder, until Ctrl-C; pipelines go on.

    The address ending in /api/v1/docs shows the requests.
    """
    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key belong together; give both")
    try:
        from glassflow_dagster.api.pipelines import Launch
        from glassflow_dagster.api.serve import Options, serve
    except ModuleNotFoundError as error:
        raise GlassflowError(
            f"api: the package of {error.name} is not installed; run: pip install 'glassflow-dagster[api]'"
        ) from None
    launch = Launch(create_table=create_table, log_format=log_format)
    options = Options(
        pipelines=pipelines, state=state, launch=launch, host=host, port=port, token_file=token_file,
        tls=(tls_cert, tls_key) if tls_cert and tls_key else None, largest_request=max_request_bytes,
    )  # fmt: skip
    serve(options, report)
