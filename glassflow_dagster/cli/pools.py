"""The commands for pools: the Spark JVMs that several pipelines share."""

from pathlib import Path

import click

from glassflow_dagster.cli.options import conf_option, exit_on_error, report, settings_of, show, state_option


@click.group()
def pool() -> None:
    """Start, stop and list pools: Spark JVMs that several pipelines share (`pool` in a definition).

    A pool starts with its first pipeline and ends a minute after its last one. These commands are for one with
    settings of its own, and to end it at once.
    """


@pool.command()
@click.argument("name")
@state_option
@conf_option
@exit_on_error
def start(name: str, state: Path, conf: tuple[str, ...]) -> None:
    """Start a pool with Spark settings of its own; it has them whenever it starts, until the next `pool start`."""
    from glassflow_dagster.control.pool_launch import start_pool

    endpoint = start_pool(state, name, report, settings_of(conf))
    show(f"{name}: running (pid {endpoint.pid})")


@pool.command()
@click.argument("name")
@state_option
@exit_on_error
def stop(name: str, state: Path) -> None:
    """Stop a pool whose pipelines are stopped."""
    from glassflow_dagster.control.pool_launch import stop_pool

    show(f"{name}: {'stopped' if stop_pool(state, name) else 'not running'}")


@pool.command("list")
@state_option
@exit_on_error
def list_pools(state: Path) -> None:
    """List the pools of a state folder, and the pipelines that run in them."""
    from glassflow_dagster.control.pool_endpoint import pool_folder, pools_in, read_endpoint
    from glassflow_dagster.control.pool_launch import attached_pipelines

    for name in pools_in(state):
        endpoint = read_endpoint(pool_folder(state, name))
        if endpoint is None:
            show(f"{name}: not running")
        else:
            pipelines = ", ".join(attached_pipelines(endpoint)) or "no pipelines"
            show(f"{name}: running (pid {endpoint.pid}): {pipelines}")
