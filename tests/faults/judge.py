"""Compare the contents of ClickHouse with the oracle: rows, dead letters, and the ledger batch by batch."""

import base64
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes, residual
from tests.faults.records import Expected, Position, Record, Workload, batch_times, offset_ranges

_FATES = ("written", "duplicates", "filtered", "dead_letters")
_SHOWN = 3


def differences(client: Client, workload: Workload, database: str, records: Sequence[Record]) -> list[str]:
    """Return one line per difference, none if all is correct."""
    ledger = _ledger(client, database)
    expected = workload.expected(records, batch_times(ledger))
    return [
        *_rows(client, workload, database, expected),
        *_dead_letters(client, database, expected, records),
        *_sums(ledger, expected),
        *_residual(ledger),
        *_chain(ledger, records),
        *_batches(ledger, expected),
        *workload.differences(client),
    ]


def differences_where_it_ended(
    client: Client, workload: Workload, database: str, records: Sequence[Record]
) -> list[str]:
    """Return the differences of a pipeline that ended within a batch; that batch's rows may or may not be there."""
    ledger = _ledger(client, database)
    times = batch_times(ledger)
    accounted = [record for record in records if record.position in times]
    least, most = workload.expected(accounted, times), workload.expected(records, times)
    return [
        *_compare("row", _rows_of(client, workload, database), least.rows, most.rows),
        *_compare("dead letter", _dead_letters_of(client, database), _raw(least, records), _raw(most, records)),
        *_sums(ledger, least),
        *_residual(ledger),
        *_chain(ledger, accounted),
        *_batches(ledger, least),
    ]


def _rows(client: Client, workload: Workload, database: str, expected: Expected) -> list[str]:
    return _compare("row", _rows_of(client, workload, database), expected.rows, expected.rows)


def _rows_of(client: Client, workload: Workload, database: str) -> Counter[Any]:
    query = f"SELECT {', '.join(workload.columns)} FROM {database}.{workload.own_rows}"
    return Counter(tuple(row) for row in client.query(query).result_rows)


def _dead_letters(client: Client, database: str, expected: Expected, records: Sequence[Record]) -> list[str]:
    must = _raw(expected, records)
    return _compare("dead letter", _dead_letters_of(client, database), must, must)


def _dead_letters_of(client: Client, database: str) -> Counter[Any]:
    # One event of many has no value of its own in Kafka.
    query = (
        "SELECT toString(topic), partition, offset, item, toString(stage), if(item < 0, base64Encode(value), '') "
        f"FROM {database}.glassflow_dead_letters"
    )
    return Counter(tuple(row) for row in client.query(query).result_rows)


def _raw(expected: Expected, records: Sequence[Record]) -> Counter[Any]:
    values = {record.position: record.value for record in records}
    return Counter(
        (*place, stage, "" if place[3] >= 0 else base64.b64encode(values[place[:3]]).decode())
        for place, stage in expected.dead_letters.items()
    )


def _compare(what: str, found: Counter[Any], least: Counter[Any], most: Counter[Any]) -> list[str]:
    """List what is missing from `least` and what exceeds `most`."""
    return [
        *_list(f"{what} missing", least - found),
        *_list(f"{what} too many", found - most),
    ]


def _list(what: str, found: Counter[Any]) -> list[str]:
    return [f"{what}: {found.total()}, as {sorted(found.items(), key=repr)[:_SHOWN]}"] if found else []


def _ledger(client: Client, database: str) -> list[dict[str, Any]]:
    query = f"SELECT * FROM {database}.glassflow_ledger ORDER BY batch_id, inserted_at"
    return [dict(row) for row in client.query(query).named_results()]


def _sums(ledger: Sequence[Mapping[str, Any]], expected: Expected) -> list[str]:
    found = {name: sum(row[name] for row in ledger) for name in expected.sums}
    if ledger and "waiting" in found:
        found["waiting"] = ledger[-1]["waiting"]
    return [
        f"ledger: {name} is {found[name]}, not {count}" for name, count in expected.sums.items() if found[name] != count
    ]


def _residual(ledger: Sequence[Mapping[str, Any]]) -> list[str]:
    """Check that the metric `glassflow_ledger_residual` is 0, which alerts rely on."""
    sums = {f.name: sum(row[f.name] for row in ledger) for f in fields(Outcomes)}
    sums["waiting"] = ledger[-1]["waiting"] if ledger else 0
    # Only a join takes events.
    found = residual(Outcomes(**sums), joins=bool(sums["taken"]))
    return [f"ledger: the residual is {found}"] if found else []


def _chain(ledger: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> list[str]:
    """Check that batch ids have no gap, and that offsets are contiguous from each partition's first record to its last.

    Offsets after the last record, such as transaction markers, are not records.
    """
    wrong = []
    if (numbers := [row["batch_id"] for row in ledger]) != list(range(len(ledger))):
        wrong.append(f"ledger: batches {[n for n, c in Counter(numbers).items() if c > 1]} twice, of {len(numbers)}")
    if len(names := {str(row["checkpoint_id"]) for row in ledger}) > 1:
        wrong.append(f"ledger: {len(names)} checkpoints")
    ends: dict[tuple[str, int], int] = {}
    for row in ledger:
        for topic, partition, offsets in offset_ranges(row["offsets"]):
            if offsets.start != ends.get((topic, partition), 0):
                wrong.append(f"ledger: batch {row['batch_id']} begins {topic}/{partition} at {offsets.start}")
            ends[topic, partition] = offsets.stop
    wrong += [f"ledger: {record.position} is in no batch" for record in records if record.offset >= _end(ends, record)]
    return wrong[: 2 * _SHOWN]


def _end(ends: Mapping[tuple[str, int], int], record: Record) -> int:
    return ends.get((record.topic, record.partition), 0)


def _batches(ledger: Sequence[Mapping[str, Any]], expected: Expected) -> list[str]:
    """Check each batch's counts against the outcomes of its own records, if the oracle knows them."""
    if not expected.fates:
        return []
    wrong = []
    for row in ledger:
        positions: list[Position] = [
            (topic, partition, offset)
            for topic, partition, offsets in offset_ranges(row["offsets"])
            for offset in offsets
        ]
        must: Counter[Hashable] = Counter(expected.fates.get(position) for position in positions)
        must.update(fate for position in positions for fate in expected.further.get(position, ()))
        found = {fate: row[fate] for fate in _FATES}
        if found != {fate: must[fate] for fate in _FATES}:
            wrong.append(f"ledger: batch {row['batch_id']} says {found}, not {dict(must)}")
    return wrong[:_SHOWN]
