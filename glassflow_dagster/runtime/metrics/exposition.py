"""Prometheus' view of pipelines: each figure as a metric with its name, unit and labels.

The names are a contract: dashboards and alerts use them. docs/reference/metrics.md lists them, from this module.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.metrics.measures import InsertMeasures
from glassflow_dagster.runtime.metrics.pipeline_metrics import Driver, PipelineMetrics

# Reads the figures of all pipelines that are to be shown.
MetricsSource = Callable[[], Iterable[PipelineMetrics]]
# Label values after `pipeline`, and the value.
Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True)
class Figure:
    """A counter or gauge: its name, meaning and labels besides `pipeline`, and its samples of one pipeline."""

    name: str
    meaning: str
    samples: Callable[[PipelineMetrics], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    @property
    def kind(self) -> str:
        """The metric's type."""
        return "counter" if self.is_counter else "gauge"


@dataclass(frozen=True)
class Distribution:
    """A histogram: its name, meaning and labels besides `pipeline`, and the histograms of one pipeline."""

    name: str
    meaning: str
    histograms: Callable[[PipelineMetrics], Iterable[tuple[tuple[str, ...], Histogram]]]
    labels: tuple[str, ...] = ()

    kind = "histogram"


def _known(value: float | None) -> Iterator[Sample]:
    """Yield the sample of a figure without further labels; none while it is not known."""
    if value is not None:
        yield (), value


def _of_driver(figure: Callable[[Driver], float]) -> Callable[[PipelineMetrics], Iterable[Sample]]:
    return lambda pipeline: _known(figure(pipeline.driver) if pipeline.driver else None)


def _of_inserts(
    histogram: Callable[[InsertMeasures], Histogram],
) -> Callable[[PipelineMetrics], Iterable[tuple[tuple[str, ...], Histogram]]]:
    return lambda pipeline: (((table,), histogram(insert)) for table, insert in _inserts(pipeline))


def _inserts(pipeline: PipelineMetrics) -> Iterable[tuple[str, InsertMeasures]]:
    return pipeline.measures.inserts.items() if pipeline.measures else ()


def _records(pipeline: PipelineMetrics) -> Iterator[Sample]:
    for outcome, number in pipeline.outcomes.items():
        yield (outcome,), number


def _of_lags(part: int) -> Callable[[PipelineMetrics], Iterable[Sample]]:
    """Return the samples of each partition's lag. part: 0 for its records, 1 for its seconds."""
    return lambda pipeline: (
        ((topic, str(partition)), lag[part])
        for topic, partitions in pipeline.lags.items()
        for partition, lag in partitions.items()
    )


def _retries(pipeline: PipelineMetrics) -> Iterator[Sample]:
    for table, insert in _inserts(pipeline):
        for code, number in insert.retries.items():
            yield (table, code), number


def _ages(pipeline: PipelineMetrics) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    if pipeline.measures and pipeline.measures.event_to_row.count:
        yield (), pipeline.measures.event_to_row


def _phases(pipeline: PipelineMetrics) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for phase, histogram in pipeline.batch_phases.items():
        yield (phase,), histogram


METRICS: tuple[Figure | Distribution, ...] = (
    Figure(
        "glassflow_up",
        "1 while the driver runs and makes progress, else 0",
        _of_driver(lambda driver: float(driver.up)),
    ),
    Figure(
        "glassflow_wanted",
        "1 for a pipeline that is meant to run, 0 for one that somebody stopped",
        _of_driver(lambda driver: float(driver.wanted)),
    ),
    Figure(
        "glassflow_heartbeat_age_seconds",
        "Time since the driver's last heartbeat; it writes one every second",
        _of_driver(lambda driver: driver.heartbeat_age),
    ),
    Figure(
        "glassflow_records_total",
        "Records by outcome (events of an OTLP source), of the checkpoint's batches that are in the ledger",
        _records,
        labels=("outcome",),
        is_counter=True,
    ),
    Figure(
        "glassflow_ledger_residual",
        "Records that were read and have no outcome in the ledger; anything but 0 is a defect",
        lambda pipeline: _known(pipeline.residual),
    ),
    Figure("glassflow_consumer_lag_records", "Unread records", _of_lags(0), labels=("topic", "partition")),
    Figure(
        "glassflow_consumer_lag_seconds",
        "For how long the oldest unread record has been in the topic, counted from the driver's start at the earliest",
        _of_lags(1),
        labels=("topic", "partition"),
    ),
    Distribution(
        "glassflow_event_to_row_seconds",
        "Time from a record's timestamp in Kafka to the answer of the insert of its row; not of joined rows",
        _ages,
    ),
    Distribution(
        "glassflow_batch_seconds",
        "Duration of a batch by phase: total, or one of Spark's phases",
        _phases,
        labels=("phase",),
    ),
    Distribution(
        "glassflow_insert_seconds",
        "Duration of an insert request that succeeded",
        _of_inserts(lambda insert: insert.seconds),
        labels=("table",),
    ),
    Distribution(
        "glassflow_insert_rows",
        "Rows of an insert request that succeeded",
        _of_inserts(lambda insert: insert.rows),
        labels=("table",),
    ),
    Distribution(
        "glassflow_insert_bytes",
        "Bytes of an insert request that succeeded, before compression",
        _of_inserts(lambda insert: insert.bytes),
        labels=("table",),
    ),
    Figure(
        "glassflow_insert_retries_total",
        "Insert attempts that were repeated, by ClickHouse's error code, or none without an answer",
        _retries,
        labels=("table", "code"),
        is_counter=True,
    ),
    Figure(
        "glassflow_dead_letters_waiting",
        "Dead letters that are neither replayed nor purged",
        lambda pipeline: _known(pipeline.dead_letters_waiting),
    ),
    Figure(
        "glassflow_state_keys",
        "Keys in the deduplication window; only on the processing clock and without a join",
        lambda pipeline: _known(pipeline.state_keys),
    ),
    Figure(
        "glassflow_state_bytes",
        "Bytes of the state, in memory and on disk",
        lambda pipeline: _known(pipeline.state_bytes),
    ),
    Figure(
        "glassflow_watermark_lag_seconds",
        "Time by which the watermark is behind now; only on the event clock",
        lambda pipeline: _known(pipeline.watermark_lag),
    ),
    Figure(
        "glassflow_fencing_epoch",
        "The number of the newest driver; older ones may not write",
        lambda pipeline: _known(pipeline.epoch),
    ),
    Figure(
        "glassflow_restarts_total",
        "Starts of a driver of the pipeline after the first one",
        lambda pipeline: _known(None if pipeline.epoch is None else pipeline.epoch - 1),
        is_counter=True,
    ),
    Figure(
        "glassflow_state_disk_free_bytes",
        "Free bytes of the file system that has the state",
        _of_driver(lambda driver: driver.disk_free),
    ),
    Figure(
        "glassflow_state_disk_size_bytes",
        "Size of the file system that has the state",
        _of_driver(lambda driver: driver.disk_size),
    ),
)


class PipelineCollector(Collector):
    """Reads the figures of pipelines whenever Prometheus asks."""

    def __init__(self, source: MetricsSource) -> None:
        """Collect from `source`."""
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with the samples of all pipelines; a metric without a sample is left out."""
        pipelines = list(self._source())
        for metric in METRICS:
            family = _figure(metric, pipelines) if isinstance(metric, Figure) else _distribution(metric, pipelines)
            if family.samples:
                yield family


def registry_of(source: MetricsSource) -> CollectorRegistry:
    """Return a registry that has the pipelines' metrics alone, and not those of this process."""
    # Not described in advance: that would read the figures once more.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PipelineCollector(source))
    return registry


def openmetrics_text(source: MetricsSource) -> str:
    """Return all metrics in the text format of OpenMetrics."""
    text: bytes = generate_latest(registry_of(source))  # type: ignore[no-untyped-call]
    return text.decode()


def _figure(metric: Figure, pipelines: Iterable[PipelineMetrics]) -> Metric:
    family_type = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
    family = family_type(metric.name, metric.meaning, labels=("pipeline", *metric.labels))
    for pipeline in pipelines:
        for labels, value in metric.samples(pipeline):
            family.add_metric((pipeline.pipeline, *labels), value)
    return family


def _distribution(metric: Distribution, pipelines: Iterable[PipelineMetrics]) -> Metric:
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=("pipeline", *metric.labels))
    for pipeline in pipelines:
        for labels, histogram in metric.histograms(pipeline):
            family.add_metric((pipeline.pipeline, *labels), _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the cumulative counts by upper bound, as Prometheus has them."""
    counted, found = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        counted += count
        found.append((bound, float(counted)))
    return found
