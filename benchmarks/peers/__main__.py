"""Deduplication from Kafka into ClickHouse, compared with peers: one topic, one broker, one ClickHouse, one machine.

The topic holds seeded events of 190 bytes, a tenth of them twice, when a peer starts with an empty table and empty
state; `benchmarks.steady_state` says how it is measured. Peers run alternately, so that a gradual slowdown of the
machine affects all of them.

With `--kill` each run kills the peer's processes (SIGKILL) when half of the rows are visible, and starts it again: rows
lost or duplicated show what its guarantee is worth.

    make bench-peers        or: python -m benchmarks.peers --events 500000 --runs 1 --only baseline quix
"""

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, fill_topic
from benchmarks.peers.peer import GlassFlow, Peer
from benchmarks.results import Runs, turns
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

TOPIC = "events"


PRODUCT = ProductCase("glassflow-dagster")
PRODUCT_REMARKS = {
    "guarantee": "exactly once into ClickHouse, also after a crash; the ledger accounts for every record",
    "state": "RocksDB, checkpointed with each batch; a key is forgotten after 24 hours",
}
PEERS = {
    "baseline": Peer("baseline consumer", "baseline"),
    "bytewax": Peer("Bytewax", "bytewax_flow"),
    "pathway": Peer("Pathway", "pathway_flow"),
    "quix": Peer("Quix Streams", "quix"),
    "flink": Peer("PyFlink", "flink", "requirements-flink"),
    "glassflow": GlassFlow(),
}


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("peers")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", choices=("own", *PEERS), default=["own", *PEERS], help="these alone")
    parser.add_argument("--kill", action="store_true", help="kill each half way; count what is lost or doubled")
    arguments = parser.parse_args()
    chosen: dict[str, Peer | ProductCase] = {name: PEERS.get(name, PRODUCT) for name in arguments.only}
    runs = Runs()
    for consumer in chosen.values():
        # Creates the environments now, so that their creation does not count as a peer's start.
        runs.remark(consumer.name, **(consumer.remarks if isinstance(consumer, Peer) else PRODUCT_REMARKS))
    with running_stack() as stack:
        fill_topic(stack, TOPIC, arguments.events)
        keys = distinct(arguments.events)
        expected = Expected(arguments.events, keys, keys)
        for turn, name in turns(list(chosen), arguments.runs):
            task = new_task(stack, TOPIC, f"{name}_{turn}")
            run = Run(chosen[name], stack, task, expected)
            runs.attempt(chosen[name].name, run.kill if arguments.kill else run.measure)
            run.drop()
    parameters = {"events": arguments.events, "keys": keys, "duplicates": DUPLICATES, "seed": SEED}
    runs.write(
        arguments.results, "peers_killed" if arguments.kill else "peers", {**parameters, "partitions": PARTITIONS}
    )


if __name__ == "__main__":
    main()
