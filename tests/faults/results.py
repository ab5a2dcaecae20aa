"""Results of the repetitions: stored in results.json, published in docs/faults.md."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassflow_dagster.runtime.cache import exclusive
from tests.cluster.fault_kinds import CLUSTER
from tests.cluster.fault_kinds import KINDS as CLUSTER_KINDS
from tests.faults.kinds import KINDS, Kind
from tests.faults.repetition import WORKLOADS, Outcome
from tests.replicas.fault_kinds import KINDS as REPLICA_KINDS
from tests.replicas.fault_kinds import QUORUM, REPLICAS
from tests.replicas.servers import SESSION_SECONDS

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

# Seeds without differences, and the differences of other seeds.
Record = dict[str, list[Any]]

_HEAD = """\
# Faults

Each repetition runs a pipeline against real processes, injects one fault at a moment drawn from its seed, and then
compares all rows, all dead letters and the ledger, batch by batch, with what a plain-Python reference computes from the
topics. A repetition is exact when nothing differs and, where the fault is not the driver's own death, the driver has
continued without help. This command runs one repetition: `python -m tests.faults --kind "answer cut" --seed 7`.
`make faults` runs the repetitions missing from {wanted} of each kind, and writes this page.

These rules apply to every kind: no key is lost or duplicated, the first event of each key is in the table, each dead
letter is stored with its stage and its raw value, and the batches of the ledger have no gap between them, cover every
record, and count the outcomes of their records.

Successive drivers of a repetition run different batches [inline](concepts/architecture.md#small-batches): those of up
to 400 records, then all, then none. So a batch that one driver has begun is often repeated by a driver that would run
it in the other way.

The workload `table` has a partitioned table with a default, an index, a TTL and a constraint, a materialized view that
sums its rows, keys of more than 24 bytes, a window that ends during a repetition, and another writer, whose rows and
sums are checked too. The workload `shared` is that of the first column in a [pool](guides/operating.md#pools), whose
processes count as the driver's; only `driver killed` and `driver stopped` leave them running. The workloads `avro` and
`protobuf` are that of the first column in these formats; `routed` is that of the first column with two routes, so that
each row must be in the right one of three tables, each of which rejects some. In `copied` these events go to all tables
that take them (`match: all`): all of them to the first, which rejects some, and about half to one or two others. In
`keyed` the id is a field of the key, and some keys are no JSON. The records of `otlp` are export requests with up to
four log records each. In `drawn` the table's DDL is drawn: names of columns that are also those of queries, a sorting
key with columns that the server fills, codecs, projections, a partition key, and a column with a TTL of its own.

A figure is the number of exact repetitions; in brackets is the version of the code that a driver runs, as printed by
`python -m tests.faults --version`: the package without the commands, the page and Dagster's assets. If your checkout
prints another version, a driver's code has changed since, and the figure is that of the older code.

| fault | what happens | {columns} |
|---|---|{line}
"""

_CLUSTER_HEAD = """\

## On several hosts

The workload of the first column, with its driver on one of two hosts, two executors on a Spark standalone cluster of
two more, and its state in an object store (versitygw) behind `s3a://`. The hosts are network namespaces with a disk
each, so this needs root. They share only the network, by which they reach Kafka, ClickHouse and the store. Nothing is
inline: each batch is a job of the executors. An executor that the driver has not heard of for 10 s counts as lost
(`spark.network.timeout`); cuts and slow times take between 1 and 13 s. A repetition of a cut counts only if packets
were lost by it. A driver that ends is started again on the other host, where the disk is empty; only in `driver's host
lost` and `store gone` it may end. `make faults-cluster` runs the repetitions missing from {wanted} of each kind, and
writes this page; one of them: `python -m tests.cluster.faults --kind "store: 503" --seed 7`.

| fault | what happens | cluster |
|---|---|---|
"""

_REPLICAS_HEAD = """\

## With replicated tables

The workload of the first column, with its table and its bookkeeping tables on two replicas (`ReplicatedMergeTree`) and
one ZooKeeper, whose sessions end after {session} s. In the column `quorum` the pipeline's user has the setting
`insert_quorum = 'auto'`, so that its rows, too, wait for both replicas; the ledger always does. A proxy leads each
request to the next replica that accepts connections, and sends statements such as `CREATE TABLE` to both, in place of
`ON CLUSTER`. Each replica is compared with the reference when it has fetched all parts. No batch ends while one of the
two is away. The replicas are the embedded ClickHouse with an interserver interface, which only the tests give it (Linux
on x86-64). `make faults-replicas` runs the repetitions missing from {wanted} of each kind, and writes this page; one of
them: `python -m tests.replicas.faults replicas --kind "replica killed" --seed 7`.

| fault | what happens | replicas | quorum |
|---|---|---|---|
"""

_FAILED_HEAD = """\

## Failed repetitions

A failure stays listed when its rerun succeeds. `not within N s` and `the ledger has N of M records` say that time
ran out, and what such a line calls missing was not written by then. The last line of the driver's or the broker's log
follows: so far it was starting, or rebuilding its state, or in a batch that it finished later (`killed twice` on
`routed`, with six pipelines on two cores), on a busy machine. A repetition has five minutes for its records; those of
`state lost` have 15, since those below failed with five. `the fault found nothing to act on`: the data were right, but
the driver did not start within the 90 s in which `killed twice` wanted to kill it again; these are three minutes now,
and so are the 60 s which a broker had for a start after `kill -9` (once it took 70).
`the view's sums` was no such line but a defect: a materialized view lacked 35 rows after ClickHouse was killed within
a block, the table had them. Version 302181eb28 sends the whole block again in that case. `dead letter missing` of
`replicas killed in turn` on `quorum` was one, too: a block was lost when ClickHouse gave its quorum up and confirmed
its repetition ([a server that dies](concepts/architecture.md#a-server-that-dies)). The versions since then send a
repeated block to replicated tables until it is confirmed twice; nothing else of a driver has changed since 302181eb28.
`required_number_of_replicas: 1`: the pipeline wrote a row before the second replica had the table, and ClickHouse waits
without end for a majority of [one replica](guides/operating.md#replicas); the pipeline did not begin.

"""


@dataclass
class Results:
    """Results of repetitions by workload, kind and version of the code."""

    found: dict[str, dict[str, dict[str, Record]]]

    @classmethod
    def read(cls, file: Path) -> "Results":
        return cls(json.loads(file.read_text()) if file.exists() else {})

    def missing(self, kind: str, workload: str, version: str, wanted: int) -> list[int]:
        """Return the seeds that have not succeeded with this version of the code."""
        exact = self._record(workload, kind, version)["exact"]
        return [seed for seed in range(wanted) if seed not in exact]

    def add(self, outcome: Outcome, version: str) -> None:
        record = self._record(outcome.workload, outcome.kind, version)
        if outcome.wrong:
            record["wrong"].append({"seed": outcome.seed, "what": list(outcome.wrong)})
        elif outcome.seed not in record["exact"]:
            record["exact"] = sorted([*record["exact"], outcome.seed])

    def text(self) -> str:
        """Return the content of results.json."""
        return json.dumps(self.found, indent=1, sort_keys=True) + "\n"

    def page(self) -> str:
        head = _HEAD.format(wanted=20, columns=" | ".join(WORKLOADS), line="---|" * len(WORKLOADS))
        lines = [self._line(kind, [*WORKLOADS]) for kind in KINDS]
        of_cluster = [self._line(kind, [CLUSTER]) for kind in CLUSTER_KINDS]
        of_replicas = [self._line(kind, [REPLICAS, QUORUM]) for kind in REPLICA_KINDS]
        replicas_head = _REPLICAS_HEAD.format(wanted=20, session=SESSION_SECONDS)
        return "".join((
            head, *lines, _CLUSTER_HEAD.format(wanted=20), *of_cluster, replicas_head, *of_replicas, self._wrong()
        ))  # fmt: skip

    def _record(self, workload: str, kind: str, version: str) -> Record:
        kinds = self.found.setdefault(workload, {})
        return kinds.setdefault(kind, {}).setdefault(version, {"exact": [], "wrong": []})

    def _line(self, kind: Kind, workloads: Sequence[str]) -> str:
        cells = [
            ", ".join(
                f"{_count(record)} ({version})"
                for version, record in self.found.get(workload, {}).get(kind.name, {}).items()
                if record["exact"] or record["wrong"]
            )
            for workload in workloads
        ]
        return f"| {kind.name} | {kind.does} | {' | '.join(cells)} |\n"

    def _wrong(self) -> str:
        lines = [
            f"- {kind}, {workload}, seed {each['seed']}, code {version}: {'; '.join(each['what'])}\n"
            for workload, kinds in self.found.items()
            for kind, versions in kinds.items()
            for version, record in versions.items()
            for each in record["wrong"]
        ]
        return _FAILED_HEAD + ("".join(lines) or "None.")


def _count(record: Record) -> str:
    exact, wrong = len(record["exact"]), {each["seed"] for each in record["wrong"]} - {*record["exact"]}
    return f"{exact} of {exact + len(wrong)}" if wrong else f"{exact}"


def record(outcome: Outcome, version: str, file: Path = RESULTS, page: Path = PAGE) -> None:
    """Add the outcome of a repetition to results.json, and write docs/faults.md; other processes may do so, too."""
    with exclusive(file):
        results = Results.read(file)
        results.add(outcome, version)
        file.write_text(results.text())
        page.write_text(results.page())
