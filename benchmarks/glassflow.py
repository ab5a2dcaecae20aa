"""This project beside GlassFlow: the same topics, broker, ClickHouse and machine, in turns.

GlassFlow runs in its local mode with NATS and PostgreSQL, whose CPU time and memory count as its own
(`benchmarks/peers/glassflow.py`). `seconds_to_first_row` and `seconds_to_last_row` begin with the command that starts
everything. For GlassFlow that includes NATS, PostgreSQL and its API server, which its users have running: those are
`seconds_to_start_services`, after which the request comes that creates the pipeline.

Throughput as `benchmarks.steady_state`, latency as `benchmarks.latency` measures it.

    make bench-glassflow        or: python -m benchmarks.glassflow --events 500000 --runs 1

The variable GLASSFLOW_PROGRAMS names the folder of GlassFlow's programs (benchmarks/peers/README.md).
"""

from collections.abc import Mapping, Sequence

from benchmarks import results
from benchmarks.events import COLUMNS, DUPLICATES, SEED, distinct, event, fill_topic
from benchmarks.latency import Bench, PeerBench, plan
from benchmarks.peers.glassflow import SERVICES_SECONDS
from benchmarks.peers.peer import GlassFlow
from benchmarks.peers.task import BLOCK_ROWS, Task
from benchmarks.results import Figures, Runs, turns
from benchmarks.shapes import WIDE_COLUMNS, wide_event
from benchmarks.stack import Stack, running_stack
from benchmarks.steady_state import Consumer, Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

EVENTS = 1_000_000
# Wide events are eight times as long.
WIDE_SHARE = 2
RATES = (200, 2000, 10_000)
DELAY = "100ms"
# So many keys are in the state before the first measured event: few, as GlassFlow keeps them in memory alone.
KEYS = 1000
OWN = "glassflow-dagster"
GLASSFLOW = "GlassFlow"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("glassflow")
    parser.add_argument("--only", choices=("rates", "latencies"), help="measure these alone")
    parser.add_argument("--events", type=int, default=EVENTS, help="of 190 bytes; half as many of 1.5 kB")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="events a second, for latency")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured at each rate")
    arguments = parser.parse_args()
    rates, latencies = Runs(), Runs()
    parameters = {"duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    with running_stack() as stack:
        if arguments.only != "latencies":
            rates.remark(GLASSFLOW, **GlassFlow().remarks)
            measure_rates(rates, stack, arguments.events, arguments.runs)
            events = {"events": arguments.events, "wide events": arguments.events // WIDE_SHARE}
            rates.write(arguments.results, "glassflow", {**events, **parameters})
        if arguments.only != "rates":
            measure_latencies(latencies, stack, arguments.rates, arguments.seconds, arguments.runs)
            how = {"seconds": arguments.seconds, "max_delay_time": DELAY, "max_batch_size": BLOCK_ROWS}
            latencies.write(arguments.results, "glassflow_latency", {**how, **parameters})


def measure_rates(runs: Runs, stack: Stack, events: int, turns_wanted: int) -> None:
    """Let both read a topic of small and one of wide events."""
    counts = {"small": events, "wide": events // WIDE_SHARE}
    fill_topic(stack, "small", counts["small"], event)
    fill_topic(stack, "wide", counts["wide"], wide_event)
    cases = [(topic, consumer) for topic, (shape, columns) in SHAPES.items() for consumer in consumers(shape, columns)]
    for turn, (place, (topic, consumer)) in turns(list(enumerate(cases)), turns_wanted):
        keys = distinct(counts[topic])
        task = new_task(stack, topic, f"{topic}{place}_{turn}")
        run = Run(consumer, stack, task, Expected(counts[topic], keys, keys))
        runs.attempt(consumer.name, lambda run=run, task=task: {**run.measure(), **services_seconds(task)})
        run.drop()


def services_seconds(task: Task) -> Figures:
    """Return how long GlassFlow's services took to start; nothing for this project, which has none."""
    file = task.state / SERVICES_SECONDS
    return {"seconds_to_start_services": float(file.read_text())} if file.exists() else {}


SHAPES: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "small": ("190 bytes", COLUMNS),
    "wide": ("1.5 kB in 40 fields", WIDE_COLUMNS),
}


def consumers(shape: str, columns: Mapping[str, tuple[str, str]]) -> Sequence[Consumer]:
    """Return both programs for events of one shape."""
    return ProductCase(f"{OWN}, {shape}", columns=columns), GlassFlow(f"{GLASSFLOW}, {shape}", columns=columns)


def measure_latencies(runs: Runs, stack: Stack, rates: Sequence[int], seconds: float, turns_wanted: int) -> None:
    """Send events at each rate to one program after the other; each turn has new topics and tables."""
    planned = plan(list(rates), seconds)
    sink = {"max_batch_size": BLOCK_ROWS, "max_delay_time": DELAY}
    for turn, name in turns([OWN, GLASSFLOW], turns_wanted):
        topic = f"latency_{name.replace('-', '_').lower()}_{turn}"
        bench = (
            Bench(stack, topic, KEYS, sink)
            if name == OWN
            else PeerBench(stack, GlassFlow(delay=DELAY, order_by="sent_at"), topic, KEYS)
        )
        bench.fill()
        bench.run(runs, planned, seconds, f"{name}, ")


if __name__ == "__main__":
    main()
