"""The command that serves agents by the Model Context Protocol (MCP)."""

from pathlib import Path

import click

from glassflow_dagster.cli.options import exit_on_error
from glassflow_dagster.cli.serving import needs_extra


@click.command()
@click.option(
    "--api-url", default="http://127.0.0.1:8081", show_default=True, metavar="URL", help="The HTTP API that it uses."
)
@click.option(
    "--token-file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="File of the API's token."
)
@click.option("--allow-changes", is_flag=True, help="Offer requests that change something, too.")
@exit_on_error
def mcp(api_url: str, token_file: Path | None, allow_changes: bool) -> None:
    """Offer the HTTP API's requests to an agent as MCP tools, on standard input and output; read-only by default."""

    def run() -> None:
        from glassflow_dagster.runtime.token_file import read_token
        from glassflow_dagster.server.mcp.api_client import ApiClient
        from glassflow_dagster.server.mcp.server import serve

        serve(ApiClient(api_url, read_token(token_file) if token_file else ""), allow_changes=allow_changes)

    needs_extra("mcp", "mcp", run)
