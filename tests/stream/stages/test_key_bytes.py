"""The encoding of keys, byte by byte: checkpoints store it, so any change would forget all keys."""

import hashlib

import pytest
from pyspark.sql import SparkSession

CASES = [
    ("named_struct('a', 'abc')", b"\x01\x01abc\x00\x00\x00\x03"),
    ("named_struct('a', 'é', 'b', 258L)", b"\x01\x01\x01\xc3\xa9\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x02"),
    ("named_struct('a', CAST(NULL AS STRING), 'b', true)", b"\x01\x00\x01\x01"),
    ("named_struct('a', -0.0D)", b"\x01\x01" + bytes(8)),
    ("named_struct('a', 1.5BD)", b"\x01\x01\x0f\x00\x00\x00\x01"),
    # The longest key that is stored unchanged has 24 bytes: two, the text's 18, and four of its length.
    ("named_struct('a', repeat('x', 18))", b"\x01\x01" + b"x" * 18 + b"\x00\x00\x00\x12"),
]


@pytest.mark.parametrize(("key", "form"), CASES)
def test_a_short_key_is_its_parts(spark: SparkSession, key: str, form: bytes) -> None:
    assert key_bytes(spark, key) == form


def test_a_longer_key_is_a_digest_of_16_bytes(spark: SparkSession) -> None:
    whole = b"\x01\x01" + b"x" * 19 + b"\x00\x00\x00\x13"
    assert key_bytes(spark, "named_struct('a', repeat('x', 19))") == b"\x02" + hashlib.sha256(whole).digest()[:16]


def test_what_has_no_key_is_named_after_its_partition(spark: SparkSession) -> None:
    found = spark.sql("SELECT glassflow_no_key(258) AS key").collect()[0].key
    assert bytes(found) == b"\x00\x00\x00\x01\x02"


def key_bytes(spark: SparkSession, parts: str) -> bytes:
    found = spark.sql(f"SELECT s.* FROM (SELECT {parts} AS s)")
    return bytes(found.selectExpr(f"glassflow_key({', '.join(found.columns)}) AS key").collect()[0].key)
