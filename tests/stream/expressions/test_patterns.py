"""Regular expressions mean the same as in Go or are rejected, and none takes long on any text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions.check import check_filter
from glassflow_dagster.definition.expressions.patterns import engine_pattern
from glassflow_dagster.stream.stages.expressions_in_scala import Evaluated, evaluate
from glassflow_dagster.stream.stages.scope import Scope

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
    conditions = [
        check_filter(f"text matches {json.dumps(pattern, ensure_ascii=False)}", {"text": "string"}) for pattern in good
    ]
    outputs = [Evaluated(f"p{index}", checked, "bool", "", "") for index, checked in enumerate(conditions)]
    found = (
        texts.select(
            evaluate(
                outputs, Scope({"text": "string"}, visible={"text": F.col("text")}, mappable={}, metadata={})
            ).alias("found")
        )
        .select("found.*")
        .collect()
    )
    said = {pattern: "".join(str(int(row[index])) for row in found) for index, pattern in enumerate(good)}
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
        ("^(a|b)*$", "ab" * 100_000, True),
        ("^(a|b)*$", "ab" * 100_000 + "c", False),
        ("^(.*?,){11}P", ",".join("12345") * 12, False),
    ],
)
def test_no_text_holds_a_pattern_up(spark: SparkSession, pattern: str, text: str, found: bool) -> None:
    assert matches(spark, pattern, text) == found


def matches(spark: SparkSession, pattern: str, text: str) -> bool:
    """Return whether a text has a part that matches, by the class that expressions use."""
    jvm: Any = spark._jvm
    found: bool = jvm.glassflow.GoPattern(engine_pattern(pattern)).isIn(
        jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)
    )
    return found
