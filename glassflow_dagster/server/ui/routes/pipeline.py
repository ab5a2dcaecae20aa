"""A pipeline: its state and figures, plots, ledger and checks; starts and stops."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from clickhouse_connect.driver.client import Client
from fastapi import APIRouter, Request, Response

from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.catalog import v3_of
from glassflow_dagster.server.api.metrics_summary import metrics_summary
from glassflow_dagster.server.api.public_form import transformation_type
from glassflow_dagster.server.api.services import Given, Services
from glassflow_dagster.server.api.states import AT_REST, Status
from glassflow_dagster.server.ui.page_routes import ChangingPageRoute, PageRoute
from glassflow_dagster.server.ui.plots import Line, Plot
from glassflow_dagster.server.ui.recent import SECONDS, Recent
from glassflow_dagster.server.ui.rendering import redirect, render
from glassflow_dagster.stores.bookkeeping.ledger_view import SLICE_SECONDS, LedgerBatch, last_hour, newest_batches
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.clickhouse.client import connect

reading = APIRouter(prefix="/pipelines/{pipeline_id}", route_class=PageRoute)
changing = APIRouter(prefix="/pipelines/{pipeline_id}", route_class=ChangingPageRoute)
_BATCHES = 50
_T = TypeVar("_T")


@dataclass(frozen=True)
class Head:
    """What each page of a pipeline begins with. config: None where the definition is invalid, then with the reason."""

    pipeline_id: str
    name: str
    kind: str
    config: PipelineConfig | None
    invalid: str
    health: Mapping[str, Any]
    dagster: str

    @property
    def is_at_rest(self) -> bool:
        """Whether it can be resumed, edited and deleted."""
        return self.health["overall_status"] in AT_REST

    @property
    def is_running(self) -> bool:
        """Whether it can be stopped."""
        return self.health["overall_status"] is Status.RUNNING

    @property
    def path(self) -> str:
        """The way of its records, for people."""
        if self.config is None:
            return ""
        topics = " + ".join(", ".join(source.topic_names) or str(source.topic_pattern) for source in self.config.inputs)
        return f"{topics} → {self.config.sink.table_name}"


def head_of(request: Request, services: Services, pipeline_id: str) -> Head:
    """Return the head of a pipeline's pages; raises `ApiError` for an unknown one."""
    stored = services.catalog.stored(pipeline_id)
    config, invalid, kind = None, "", ""
    try:
        config = services.catalog.load(stored)
        kind = transformation_type(v3_of(stored.raw, stored.file))
    except ApiError as error:
        invalid = "\n".join(f"{each.path}: {each.text}" for each in error.problems) or str(error)
    health = services.catalog.health(pipeline_id)
    dagster = request.app.state.pages.dagster
    group = re.sub(r"[^A-Za-z0-9_]", "_", pipeline_id)
    selection = quote(f'group:"{group}"')
    link = f"{dagster}/asset-groups?asset-selection={selection}" if dagster else ""
    return Head(pipeline_id, str(stored.raw.get("name") or ""), kind, config, invalid, health, link)


def _work(config: PipelineConfig) -> list[tuple[str, str]]:
    """Return what a pipeline does, as terms and descriptions."""
    found = []
    for source in config.inputs:
        dedup = config.dedup_of(source)
        if dedup:
            window = format_duration(dedup.time_window)
            found.append((f"Duplicates in {source.source_id}", f"by {', '.join(dedup.key_fields)} within {window}"))
    if config.join:
        left, right = config.join.sides
        keys = f"{', '.join(left.key_fields)} = {', '.join(right.key_fields)}"
        kind = "unmatched ones are kept" if config.join.keeps_unmatched else "unmatched ones are left out"
        window = format_duration(left.time_window)
        found.append(("Join", f"{left.source_id} with {right.source_id} by {keys} within {window}; {kind}"))
    batch = f"at most {config.sink.max_batch_size:,} rows, {format_duration(config.sink.max_delay_time)}"
    return [*found, ("Batches", batch)]


@reading.get("")
def show(pipeline_id: str, request: Request, services: Given) -> Response:
    """Show state, figures and plots."""
    head = head_of(request, services, pipeline_id)
    work = _work(head.config) if head.config else []
    return render(request, "pipeline.html", head=head, work=work, **_figures(services, pipeline_id))


@reading.get("/live")
def live(pipeline_id: str, request: Request, services: Given) -> Response:
    """Return state and figures."""
    head = head_of(request, services, pipeline_id)
    return render(request, "parts/live.html", head=head, **_figures(services, pipeline_id))


@reading.get("/plots")
async def plots(pipeline_id: str, request: Request, services: Given) -> Response:
    """Return the plots of the last hour."""
    config = services.catalog.config(pipeline_id)
    database, error = config.sink.connection_params.database, ""
    slices: dict[int, Outcomes] = {}
    try:
        slices = await services.slow.run(_with_client, config, lambda client: last_hour(client, database, pipeline_id))
    except GlassflowError as problem:
        error = str(problem)
    joins = config.join is not None
    recent = _recent_plots(request.app.state.pages.recent, pipeline_id, joins=joins)
    drawn = [*_ledger_plots(slices, joins=joins), *recent]
    return render(request, "parts/plots.html", plots=drawn, error=error)


@reading.get("/ledger")
async def ledger(pipeline_id: str, request: Request, services: Given, before: int | None = None) -> Response:
    """Show the batches, the newest first."""
    head = head_of(request, services, pipeline_id)
    batches: list[LedgerBatch] = []
    error = head.invalid
    if head.config:
        config, database = head.config, head.config.sink.connection_params.database
        try:
            batches = await services.slow.run(
                _with_client, config, lambda client: newest_batches(client, database, pipeline_id, _BATCHES, before)
            )
        except GlassflowError as problem:
            error = str(problem)
    older = batches[-1].batch_id if len(batches) == _BATCHES else None
    return render(request, "ledger.html", head=head, batches=batches, older=older, before=before, error=error)


@reading.get("/checks")
def checks(pipeline_id: str, request: Request, services: Given) -> Response:
    """Show the page of the checks, which are made on request."""
    return render(request, "checks.html", head=head_of(request, services, pipeline_id))


@reading.get("/checks/run")
async def run_checks(pipeline_id: str, request: Request, services: Given) -> Response:
    """Compare Kafka, ledger and table, and return what was found. Nothing is written."""
    config = services.catalog.config(pipeline_id)
    found, error, began = None, "", time.monotonic()
    try:
        found = await services.slow.run(verify_pipeline, config, lambda _: None)
    except GlassflowError as problem:
        error = str(problem)
    seconds = time.monotonic() - began
    return render(request, "parts/checks.html", found=found, error=error, seconds=seconds)


@changing.post("/stop")
def stop(pipeline_id: str, services: Given) -> Response:
    """Stop a pipeline after its batch."""
    services.pipelines.stop(pipeline_id)
    return redirect(f"/pipelines/{pipeline_id}")


@changing.post("/resume")
def resume(pipeline_id: str, services: Given) -> Response:
    """Start a stopped pipeline on its checkpoint."""
    services.pipelines.resume(pipeline_id)
    return redirect(f"/pipelines/{pipeline_id}")


@changing.post("/terminate")
def terminate(pipeline_id: str, services: Given) -> Response:
    """Kill a pipeline's driver."""
    services.pipelines.terminate(pipeline_id)
    return redirect(f"/pipelines/{pipeline_id}")


@changing.post("/delete")
def delete(pipeline_id: str, services: Given) -> Response:
    """Delete the definition of a stopped pipeline."""
    services.pipelines.delete(pipeline_id, None)
    return redirect("/")


def _figures(services: Services, pipeline_id: str) -> dict[str, Any]:
    figures = metrics_summary(services.catalog, pipeline_id)
    return {"figures": figures, "known": "records" in figures}


def _with_client(config: PipelineConfig, ask: Callable[[Client], _T]) -> _T:
    with connect(config.sink.connection_params) as client:
        return ask(client)


def _ledger_plots(slices: Mapping[int, Outcomes], *, joins: bool) -> list[Plot]:
    """Return the plots of the ledger: records per second, slice by slice; the present one is not over yet."""
    now = int(time.time() // SLICE_SECONDS)
    known = range(min(slices, default=now), now)

    def line(name: str, style: int, count: Callable[[Outcomes], int]) -> Line:
        none = Outcomes()
        rates = ((SLICE_SECONDS * (at + 0.5), count(slices.get(at, none)) / SLICE_SECONDS) for at in known)
        return Line(name, style, [*rates])

    dropped = [line("duplicates", 3, lambda o: o.duplicates), line("filtered", 4, lambda o: o.filtered),
               line("dead letters", 5, lambda o: o.dead_letters)]  # fmt: skip
    if joins:
        dropped.append(line("unmatched", 6, lambda o: o.unmatched))
    done = [line("read", 1, lambda o: o.read), line("written", 2, lambda o: o.written)]
    return [
        Plot("Records per second", done, SLICE_SECONDS, lambda value: f"{value:,.4g}"),
        Plot("Not written, per second", dropped, SLICE_SECONDS, lambda value: f"{value:,.3g}"),
    ]


def _recent_plots(recent: Recent, pipeline_id: str, *, joins: bool) -> Iterator[Plot]:
    """Yield the plots of the samples. A joined row has two records, so that its latency is not measured."""
    moments = recent.of(pipeline_id)
    lag = Line("lag", 1, [(each.time, float(each.lag)) for each in moments if each.lag is not None])
    yield Plot("Lag in records", [lag], SECONDS, lambda value: f"{value:,.0f}", least=10)
    if not joins:
        half = Line("half of the rows", 1, [(each.time, each.p50) for each in moments if each.p50 is not None])
        most = Line("99 %", 2, [(each.time, each.p99) for each in moments if each.p99 is not None])
        yield Plot("Latency in seconds", [half, most], SECONDS, lambda value: f"{value:,.3g}")
