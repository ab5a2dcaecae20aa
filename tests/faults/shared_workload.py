"""The deduplicated events in a pipeline that shares a JVM (a pool)."""

from typing import Any

from tests.faults.dedup_workload import DedupWorkload


class SharedWorkload(DedupWorkload):
    """Events for a pipeline whose JVM is that of a pool, which outlives its drivers."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        return {**super().definition(brokers, clickhouse_port), "pool": "shared"}
