"""The command that says what a pipeline needs for a load."""

import dataclasses
import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassflow_dagster.cli.options import exit_on_error, show, show_json
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from glassflow_dagster.definition.capacity.model import Plan


class _Duration(click.ParamType):  # type: ignore[type-arg] # generic in the newest click only
    """A duration as in definitions: 90s, 1h30m, 7d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration; fails for any other text."""
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rate", type=click.FloatRange(0, min_open=True), required=True, help="Events a second, at the peak.")
@click.option("--window", type=_Duration(), help="In place of the definition's deduplication or join windows.")
@click.option(
    "--event-bytes", type=click.IntRange(1), default=500, show_default=True, help="Mean size of a record's value."
)
@click.option(
    "--new-share", type=click.FloatRange(0, 1), default=1.0, show_default=True,
    help="Share of the events whose key is new within the window.",
)  # fmt: skip
@click.option("--topic-partitions", type=click.IntRange(1), help="The topic's partitions; by default what is needed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exit_on_error
def plan(
    file: Path,
    rate: float,
    window: timedelta | None,
    event_bytes: int,
    new_share: float,
    topic_partitions: int | None,
    as_json: bool,
) -> None:
    """Say what a pipeline needs for a load: cores, executors, partitions, memory, and what gives out first.

    It is computed from measurements on one machine (docs/concepts/capacity.md); no server is asked.
    """
    from glassflow_dagster.definition.capacity.model import Load, make_plan, window_of

    config = load_pipeline(file)
    load = Load(rate, event_bytes, window_of(config) if window is None else window, new_share, topic_partitions)
    found = make_plan(config, load)
    if as_json:
        show_json(_as_json(found))
        return
    show(f"{config.pipeline_id}: {rate:,.0f} events/s of {event_bytes:,} bytes, {found.kind.value}")
    for name, value in _lines(found, load.window):
        show(f"  {name:<28}{value}")


def _lines(found: "Plan", window: timedelta) -> Iterator[tuple[str, str]]:
    """Yield the lines of a plan: name, and value with its unit."""
    where = f"{found.executors} executors of a cluster, beside the driver" if found.executors else "within the driver"
    yield "cores for Spark's tasks", f"{found.cores}, {where}"
    yield "partitions of the topic", f"{found.topic_partitions}"
    if found.state_partitions:
        yield "partitions of the state", f"{found.state_partitions} (resources.transform[].replicas)"
        yield "keys", f"{found.keys:,.0f} within {format_duration(window)}, {found.disk_bytes / 1e9:,.1f} GB of disk"
    process = "an executor" if found.executors else "the driver"
    yield f"memory of {process}", f"{found.memory_mib / 1024:,.1f} GiB"
    yield "cores for ClickHouse, Kafka", f"{found.clickhouse_cores:,.1f}, {found.kafka_cores:,.1f}"
    if math.isfinite(found.interval):
        yield "a batch every", f"{found.interval:,.2f} s; the driver works {found.driver_busy:.0%} of the time"
        yield "inserts", f"{found.inserts_a_second:,.1f}/s"
        upload, requests = found.upload_bytes_a_second / 1e6, found.requests_a_second
        yield "checkpoint", f"{upload:,.1f} MB/s, {requests:,.0f} requests/s if it is in an object store"
    for number, wall in enumerate(found.walls):
        reached = "" if number else ("first wall: " if found.is_reached else "the load is beyond it: ")
        yield f"wall at {wall.rate:,.0f}/s", f"{reached}{wall.name}; beyond: {wall.remedy}"


def _as_json(found: "Plan") -> dict[str, object]:
    """Return a plan as JSON has it; null for an interval that is never reached."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in dataclasses.asdict(found).items()
    }
