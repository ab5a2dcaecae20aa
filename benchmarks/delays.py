"""What `max_delay_time` costs: latency and CPU time of a pipeline with few events, for several of its values.

As `benchmarks.latency`, whose pipeline has one value, at rates at which each batch is due to the delay.

    make bench-delays        or: python -m benchmarks.delays --delays 100ms 1s --seconds 20 --runs 1
"""

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED
from benchmarks.latency import Bench, plan
from benchmarks.results import Runs
from benchmarks.stack import running_stack

DELAYS = ("100ms", "200ms", "300ms", "500ms", "1s")
RATES = (200, 2000)
KEYS = 100_000
MAX_BATCH_SIZE = 50_000


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("delays")
    parser.add_argument("--delays", nargs="+", default=list(DELAYS), help="values of max_delay_time")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured at each rate")
    arguments = parser.parse_args()
    runs = Runs()
    planned = plan(arguments.rates, arguments.seconds)
    with running_stack() as stack:
        for delay in arguments.delays:
            bench = Bench(stack, f"delay{delay}", KEYS, {"max_batch_size": MAX_BATCH_SIZE, "max_delay_time": delay})
            bench.fill()
            for _ in range(arguments.runs):
                bench.run(runs, planned, arguments.seconds, f"{delay}, ")
    parameters = {"keys": KEYS, "seconds": arguments.seconds, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(arguments.results, "delays", parameters)


if __name__ == "__main__":
    main()
