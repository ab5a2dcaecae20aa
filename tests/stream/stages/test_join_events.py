"""Join keys: equal when the values are, whatever the number types and field names of the two sources."""

import itertools
import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.json_in_scala import json_decoder
from glassflow_dagster.stream.stages.join_events import join_keys
from glassflow_dagster.stream.stages.scope import field_scope
from glassflow_dagster.stream.stages.source_index import by_source

RECORD = (
    "value binary, source int, topic string, partition int, offset bigint, timestamp bigint, key binary, "
    "batch_time timestamp, headers array<struct<key string, value binary>>"
)


def keys(spark: SparkSession, types: tuple[list[str], list[str]], values: tuple[list[Any], list[Any]]) -> list[Any]:
    """Return the key of each source's values, one record per value or tuple of values."""
    fields = [
        [SchemaField(name=f"{side}{n}", type=kind, required=False) for n, kind in enumerate(kinds)]
        for side, kinds in zip("lr", types, strict=True)
    ]
    join = JoinConfig.model_validate(
        {
            "enabled": True,
            **{
                f"{name}_source": {"source_id": name, "keys": [f.name for f in declared], "time_window": "1h"}
                for name, declared in zip(("left", "right"), fields, strict=True)
            },
            "output_fields": [{"source_id": "left", "name": "l0"}],
        }
    )
    rows = [
        (
            json.dumps(dict(zip((f.name for f in fields[side]), row, strict=True))).encode(),
            side,
            "t",
            0,
            0,
            None,
            None,
            None,
            [],
        )
        for side, rows in enumerate(values)
        for row in rows
    ]
    records: DataFrame = decode(
        spark.createDataFrame(rows, RECORD).coalesce(1), [json_decoder(declared) for declared in fields]
    )
    assert records.where("error is not null").count() == 0
    names = [field_scope(declared, side) for side, declared in enumerate(fields)]
    return [row[0] for row in records.select(by_source(join_keys(join, names))).collect()]


NUMBERS = [
    0, 7, -7, 2**53 + 1, 2**53 + 2, 2**63 - 1, 7.5, -0.0, 9007199254740994.0, 1e300, -(2**63), 0.1,
    # Beyond signed 64 bits, where doubles are 2,048 apart.
    2**63, 2**63 + 1, 2**63 + 2**11, 2**64 - 2**11, 2**64 - 1, 2.0**63, 2.0**63 - 2**10, 2.0**64 - 2**11, 2.0**64,
]  # fmt: skip
LIMITS = {"int": (-(2**63), 2**63 - 1), "uint": (0, 2**64 - 1)}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(("int", "uint", "float"), repeat=2)))
def test_numbers_of_any_kinds_are_one_key_when_they_are_equal(spark: SparkSession, left: str, right: str) -> None:
    sides = [[value for value in NUMBERS if _fits(value, kind)] for kind in (left, right)]
    found = keys(spark, ([left], [right]), ([[v] for v in sides[0]], [[v] for v in sides[1]]))
    mine, others = found[: len(sides[0])], found[len(sides[0]) :]
    for (a, x), (b, y) in itertools.product(zip(sides[0], mine, strict=True), zip(sides[1], others, strict=True)):
        equal = (float(a) if left == "float" else a) == (float(b) if right == "float" else b)
        assert (x == y) == equal, (a, b)


def test_all_parts_count_and_a_part_that_is_null_makes_no_key(spark: SparkSession) -> None:
    rows = [["a", 1, True], ["a", 1, False], ["a", None, True], [None, 1, True], ["b", 1, True], ["", 1, True]]
    kinds = ["string", "int", "bool"]
    found = keys(spark, (kinds, kinds), (rows, rows))
    assert found[: len(rows)] == found[len(rows) :]
    assert [key is None for key in found[: len(rows)]] == [False, False, True, True, False, False]
    assert len({bytes(key) for key in found if key is not None}) == 4


def _fits(value: float, kind: str) -> bool:
    if kind == "float":
        return float(value) == value  # others are dead letters
    least, most = LIMITS[kind]
    return isinstance(value, int) and least <= value <= most
