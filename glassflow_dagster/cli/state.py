"""The commands for the state of stopped pipelines."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import exit_on_error, pipelines_option, report, show, state_option
from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.definition.folder import find_definition
from glassflow_dagster.definition.model.state import STORES, State, is_url
from glassflow_dagster.errors import GlassflowError

# With more, planning a batch takes longer than it could gain.
MOST_PARTITIONS = 10_000

if TYPE_CHECKING:
    from glassflow_dagster.stream.checkpoint.storage import Storage


@click.group()
def state() -> None:
    """Copy the state of stopped pipelines, and change its number of partitions."""


@state.command("repartition")
@click.argument("pipeline")
@click.option(
    "--partitions", type=click.IntRange(1, MOST_PARTITIONS), required=True, metavar="N", help="The new number."
)
@pipelines_option
@state_option
@exit_on_error
def repartition(pipeline: str, partitions: int, pipelines: Path, state: Path) -> None:
    """Change the number of partitions of a stopped pipeline's state, by which its tasks use more or fewer cores.

    All keys and waiting events are kept. If it is killed, the checkpoint is the old one or the new one.
    """
    from glassflow_dagster.driver.repartition import repartition_state

    done = repartition_state(find_definition(pipeline, pipelines), state, partitions, report)
    before = "as before" if done.before == done.after else f"before: {done.before}"
    rows = "" if done.rows is None else f"; {done.rows:,} entries were written and compared"
    show(f"{pipeline}: the state has {done.after} partitions ({before}){rows}")


@state.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--pipeline", "pipelines", multiple=True, metavar="PIPELINE", help="Only this pipeline; repeatable.")
@exit_on_error
def copy_state(source: str, target: str, pipelines: tuple[str, ...]) -> None:
    """Copy the checkpoints of stopped pipelines to another store, and compare all files by their SHA-256.

    FROM and TO are folders or URLs, as in --state. TO must not have a checkpoint of these pipelines.
    """
    from glassflow_dagster.stream.checkpoint.copy import copy_checkpoint

    names = pipelines or _pipelines_in(source)
    for name in names:
        with _stopped((source, target), name):
            copied = copy_checkpoint(_storage(source, name), _target(target, name), report)
        show(f"{name}: copied and compared {copied.files:,} files, {copied.bytes / 1e6:,.1f} MB")


def _storage(place: str, pipeline_id: str) -> "Storage":
    """Return the storage of a pipeline's checkpoint in a folder, or in a store."""
    from glassflow_dagster.stream.checkpoint.open_storage import open_storage

    storage = open_storage(_store(place), Path(place) / pipeline_id, pipeline_id)
    storage.require_usable()
    return storage


def _target(place: str, pipeline_id: str) -> "Storage":
    """Return the storage of a copy; its local folder is made, which only this user may read."""
    from glassflow_dagster.control.heartbeat import make_pipeline_folder

    storage = _storage(place, pipeline_id)
    if storage.folder is not None:
        make_pipeline_folder(storage.folder.parent)
    return storage


def _pipelines_in(place: str) -> tuple[str, ...]:
    """Return the pipelines that have a checkpoint in a folder or a store; raise `GlassflowError` for none."""
    from glassflow_dagster.stream.checkpoint.open_storage import stored_pipelines

    found = stored_pipelines(_store(place), Path(place))
    if not found:
        raise GlassflowError(f"{place}: has no checkpoint; name the state that the pipelines ran with")
    return found


def _store(place: str) -> State | None:
    """Return the store that a URL names; None for a folder. Raises `GlassflowError` for another URL."""
    if not is_url(place):
        return None
    try:
        return State(url=place)
    except ValueError:
        raise GlassflowError(f"{place}: is no store for state; write {STORES}") from None


@contextmanager
def _stopped(places: Sequence[str], pipeline_id: str) -> Iterator[None]:
    """Hold a pipeline's locks on this host, so that it neither runs nor starts; raise `AlreadyRunning` while it runs.

    places: folders or stores; working files of a store's pipelines are in the default folder. A driver on another host
    is found by what it writes, when the copy is compared.
    """
    from glassflow_dagster.control.heartbeat import pipeline_folder
    from glassflow_dagster.control.lock import PipelineLock

    roots = {state_folder() if is_url(place) else Path(place).absolute() for place in places}
    with ExitStack() as held:
        for folder in sorted(pipeline_folder(root, pipeline_id) for root in roots):
            if folder.is_dir():
                held.enter_context(PipelineLock(folder))
        yield
