"""A pattern means in Java what it means in Go, or is refused."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from glassflow_dagster.expressions.language.patterns import java_pattern
from glassflow_dagster.streaming.session import java


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("^a.b$", r"(?d)^a.b\z"),
        ("(?m)^a$", "(?d)(?m)^a$"),
        (r"(?P<year>\d{4})-[$]\$", r"(?d)(?<year>\d{4})-[$]\$"),
        ("(?i:x|y)+?", "(?d)(?i:x|y)+?"),
    ],
)
def test_a_pattern_is_written_for_java(pattern: str, written: str) -> None:
    assert java_pattern(pattern) == written


@pytest.mark.parametrize(
    "pattern",
    [
        "a{",
        "a{,3}",
        "[a[b]]",
        "[a&&b]",
        "[[:alpha:]]",
        "(?=a)",
        "(?<!a)",
        r"(a)\1",
        r"\Z",
        r"\pL",
        "a**",
        "(",
        "*",
        "[a",
    ],
)
def test_what_the_dialects_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.compile(r"supported|position")):
        java_pattern(pattern)


_PARTS = [
    "a",
    ".",
    "*",
    "+",
    "?",
    "|",
    "(",
    ")",
    "[",
    "]",
    "^",
    "$",
    "-",
    "&",
    "{2}",
    "{1,}",
    r"\d",
    r"\.",
    "(?:",
    "(?P<n>",
    "}",
]


@settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(_PARTS), max_size=8).map("".join))
def test_java_takes_every_pattern_that_goes_through(spark: SparkSession, pattern: str) -> None:
    try:
        written = java_pattern(pattern)
    except ValueError:
        return
    java(spark).java.util.regex.Pattern.compile(written)
