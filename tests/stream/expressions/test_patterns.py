"""Regular expressions mean the same as in Go or are rejected, and none takes long on any text."""

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions.patterns import engine_pattern

# Results of Go: see patterns.go.
GO = json.loads(Path(__file__).with_name("patterns.json").read_text())
REFUSED = "refused"


def taken(pattern: str) -> bool:
    """Return whether a pattern is accepted."""
    try:
        engine_pattern(pattern)
    except ValueError:
        return False
    return True


def test_what_go_takes_is_taken_and_what_it_refuses_is_refused() -> None:
    assert {pattern: taken(pattern) for pattern in GO["patterns"]} == {
        pattern: said != REFUSED for pattern, said in GO["patterns"].items()
    }


def test_a_pattern_finds_what_it_finds_in_go(spark: SparkSession) -> None:
    good = [pattern for pattern, said in GO["patterns"].items() if said != REFUSED]
    texts = spark.createDataFrame(list(enumerate(GO["texts"])), "i int, text string").orderBy("i")
    found = texts.select(*(matches(pattern).cast("int").cast("string") for pattern in good)).collect()
    said = {pattern: "".join(row[index] for row in found) for index, pattern in enumerate(good)}
    assert said == {pattern: GO["patterns"][pattern] for pattern in good}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a**", "bad repetition operator: **"),
        ("(a{1000}){2}", "invalid repetition size: {2}"),
        (r"\C", r"invalid escape sequence: \C"),
        ("(" * 1000 + ")" * 1000, "more than 999 groups inside each other"),
        ("a\ud800", "surrogates not allowed"),
    ],
)
def test_a_refused_pattern_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        engine_pattern(pattern)


# Java's own engine overflows the stack on the first two, and runs practically forever on the third.
@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^(a|b)*$", "ab" * 100_000, 1),
        ("^(a|b)*$", "ab" * 100_000 + "c", 0),
        ("^(.*?,){11}P", ",".join("12345") * 12, 0),
    ],
)
def test_no_text_holds_a_pattern_up(spark: SparkSession, pattern: str, text: str, found: int) -> None:
    (row,) = spark.createDataFrame([(text,)], "text string").select(matches(pattern).cast("int")).collect()
    assert row[0] == found


def matches(pattern: str) -> Column:
    return F.call_function("glassflow_matches", F.col("text"), F.lit(engine_pattern(pattern)))
