"""Objects and arrays that expressions read come out as they were sent, or the record is a dead letter that says why."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.stream.stages.all_stages import outcomes
from tests.support.definition import definition, fields, filter_transform, mapping, sink, source, stateless_transform


def config(columns: list[dict[str, Any]], transform: dict[str, Any], **types: str) -> PipelineConfig:
    return PipelineConfig.model_validate(definition("exact", source("s", fields(**types)), sink(columns), transform))


def passed_on(**types: str) -> dict[str, Any]:
    """Return a transform that passes each field on, as the type that it has."""
    return stateless_transform("s", *((name, name, kind) for name, kind in types.items()))


TYPES = {"id": "int", "m": "map"}
PASSED_ON = config(
    [mapping("id", "Int32"), mapping("m", "Map(String, String)"), mapping("m", "JSON", "j")],
    passed_on(**TYPES),
    **TYPES,
)
# An object of a record, and what of it becomes a row or the reason of a dead letter.
MEMBERS: list[tuple[bytes, Any]] = [
    (b'{"k":"1","k":"2"}', "k: is given twice"),
    (b'{"a":{"x":1,"x":2},"k":"z"}', "a.x: is given twice"),
    (b'{"a":[0,{"x":[{"y":1,"\\u0079":2}]}]}', "a[1].x[0].y: is given twice"),
    (b'{"k":"v\\ud83d"}', "k: holds half a surrogate pair, which is not a character"),
    (b'{"k":"ok \\ud83d\\ude00"}', {"k": "ok \U0001f600"}),
    (b"{}", {}),
]


def test_members_of_an_object_are_all_there_or_the_record_is_a_dead_letter(spark: SparkSession) -> None:
    values = [b'{"id":%d,"m":%s}' % (index, members) for index, (members, _) in enumerate(MEMBERS)]
    for outcome, (members, expected) in zip(outcomes(spark, PASSED_ON, values), MEMBERS, strict=True):
        if isinstance(expected, str):
            assert outcome == ("transform", f"output 'm', m: m: {expected}"), members
        else:
            assert outcome[1] == expected, members


FILTERED = config(
    [mapping("id", "Int32"), mapping("m", "String")], filter_transform("s", 'm?.k == "1"'), **TYPES
)  # fmt: skip


def test_a_filter_decides_by_what_an_object_says_or_not_at_all(spark: SparkSession) -> None:
    found = outcomes(
        spark,
        FILTERED,
        [
            b'{"id":1,"m":{"k":"1","note":"x\\ud83d"}}',
            b'{"id":2,"m":{"k":"1"}}',
            b'{"id":3,"m":{"k":"1","d":1,"d":2}}',
            b'{"id":4,"m":{"k":"2"}}',
        ],
    )
    assert found == [
        ("filter", 'm?.k == "1": m: note: holds half a surrogate pair, which is not a character'),
        (2, '{"k":"1"}'),
        ("filter", 'm?.k == "1": m: d: is given twice'),
        "filtered",
    ]


# The text of an array, and what is written of it.
KEPT_NUMBERS = {
    "[-0.0]": "[-0.0]",
    "[-0]": "[-0.0]",
    "[-0e9]": "[-0.0]",
    "[0,0.0,0e9]": "[0,0,0.0]",
    f"[{'9' * 38}]": f"[{'9' * 38}]",
    "[12345678901234567890.25]": "[12345678901234567890.25]",
    "[123456789012345678901e-5]": "[1234567890123456.78901]",
    "[123456789012345678.00E0]": "[123456789012345678]",
    "[9007199254740993e0,52196450819740497E+1]": "[9007199254740993,521964508197404970]",
    f"[12345678901234567890.{'0' * 30}]": "[12345678901234567890]",
    "[18446744073709551615,-9223372036854775808]": "[18446744073709551615,-9223372036854775808]",
    # Doubles as other programs write them: with the fewest digits, and with 17.
    "[1e-7,9.9999999999999995e-08]": "[1.0E-7,1.0E-7]",
    "[1.7976931348623157e308]": "[1.7976931348623157E308]",
    "[4.9406564584124654e-324,5e-324]": "[4.9E-324,4.9E-324]",
    "[2.9802322387695312e-08]": "[2.9802322387695312E-8]",
    f"[1.{'0' * 60}]": "[1.0]",
}
# The text of an array, and the beginning of the reason.
LOST_NUMBERS = {
    "[1e400]": "[0]: 1e400 does not fit into a 64-bit float",
    "[1,-1e400]": "[1]: -1e400 does not fit into a 64-bit float",
    "[100e2147483647]": "[0]: 100e2147483647 does not fit into a 64-bit float",
    f"[{'1' * 49}]": f"[0]: {'1' * 49} has more digits than an expression can hold",
    f"[0.{'12345' * 9}]": "[0]: 0.12345",
    "[1.234567890123456789e300]": "[0]: 1.234567890123456789e300 has more digits",
    "[1e-400]": "[0]: 1e-400 has more digits",
    "[100e-2147483647]": "[0]: 100e-2147483647 has more digits",
}
ARRAYS = config([mapping("a", "String")], passed_on(a="array"), a="array")


def test_numbers_keep_their_digits(spark: SparkSession) -> None:
    found = outcomes(spark, ARRAYS, [f'{{"a":{text}}}'.encode() for text in KEPT_NUMBERS])
    assert [text for (text,) in found] == [*KEPT_NUMBERS.values()]


def test_a_number_whose_digits_are_too_many_makes_the_record_a_dead_letter(spark: SparkSession) -> None:
    found = outcomes(spark, ARRAYS, [f'{{"a":{text}}}'.encode() for text in LOST_NUMBERS])
    for (stage, reason), (text, start) in zip(found, LOST_NUMBERS.items(), strict=True):
        assert stage == "transform", text
        assert reason.startswith(f"output 'a', a: a: {start}"), text


# A number in an array, and its text: that of its float, if the float has all of its digits.
TEXTS = {
    "0.12345678901234567890123": "0.12345678901234567890123",
    "12345678901234567890.250": "12345678901234567890.25",
    "9007199254740993.0": "9007199254740993",
    "1.50": "1.5",
    "0.00001": "1e-05",
    "-0.0": "0",
    "1e21": "1e+21",
}


def test_a_number_as_a_text_keeps_its_digits(spark: SparkSession) -> None:
    first = config([mapping("t", "String")], stateless_transform("s", ("t", "a[0]")), a="array")
    found = outcomes(spark, first, [f'{{"a":[{number}]}}'.encode() for number in TEXTS])
    assert found == [(text,) for text in TEXTS.values()]


def test_a_text_of_21_megabytes_inside_an_object_is_written(spark: SparkSession) -> None:
    config_of_texts = config([mapping("m", "String")], passed_on(m="map"), m="map")
    text = b'{"k":"' + b"q" * 21_000_000 + b'"}'
    ((written,),) = outcomes(spark, config_of_texts, [b'{"m":' + text + b"}"])
    assert written == text.decode()


@pytest.mark.long
def test_an_object_that_no_expression_can_hold_is_a_dead_letter(spark: SparkSession) -> None:
    texts = F.array_repeat(F.concat(F.lit('"'), F.repeat(F.lit("q"), 9_000_000), F.lit('"')), F.col("id").cast("int"))
    json = F.concat(F.lit("["), F.array_join(texts, ","), F.lit("]"))
    parsed = F.call_function("glassflow_variant", json).alias("parsed")
    found = spark.range(15, 16).select(parsed).collect()[0].parsed
    assert (found.value, found.problem) == (None, "an expression cannot hold JSON of more than 128 MiB")


ANY = config([mapping("x", "UInt8")], passed_on(x="any"), x="any")
ANY_TEXT = config([mapping("x", "String")], passed_on(x="any"), x="any")


@pytest.mark.parametrize(
    ("pipeline", "value", "outcome"),
    [
        (ANY, b"1", (1,)),
        (ANY, b"1.0", (1,)),
        (ANY, b'"a"', ("mapping", "column 'x' (UInt8): expected a whole number, got string")),
        (ANY_TEXT, b'"1"', ("1",)),
        (ANY_TEXT, b'{"b":[1,"x",null]}', ('{"b":[1,"x",null]}',)),
    ],
)
def test_an_output_of_any_type_is_what_was_sent(
    spark: SparkSession, pipeline: PipelineConfig, value: bytes, outcome: Any
) -> None:
    assert outcomes(spark, pipeline, [b'{"x":' + value + b"}"]) == [outcome]
