"""Objects and arrays that expressions read come out as they were sent, or the record is a dead letter that says why."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.stream.stages.all_stages import outcomes
from tests.support.definition import definition, fields, filter_transform, mapping, sink, source, stateless_transform


def config(columns: list[dict[str, Any]], transform: dict[str, Any], **types: str) -> PipelineConfig:
    return PipelineConfig.model_validate(definition("exact", source("s", fields(**types)), sink(columns), transform))


def passed_on(**types: str) -> dict[str, Any]:
    """Return a transform that passes each field on, as the type that it has."""
    return stateless_transform("s", *((name, name, kind) for name, kind in types.items()))


TYPES = {"id": "int", "m": "map"}

# The value of a field of each type, as it stands in the record; some of them no column holds, or no decoder takes.
VALUES: dict[str, list[str]] = {
    "string": ['"a"', '""', '"\\ud83d\\ude00 \\n"', '"\\ud83d"', "1", "null"],
    "int": ["1", "-9223372036854775808", "1.0", "1e2", "9223372036854775808", "1.5"],
    "uint": ["18446744073709551615", "0", "-1", "1e3"],
    "float": ["1.5", "-0.0", "1e-400", "1e400", "16777217", "0.1"],
    "bool": ["true", "false", "1", "null"],
    "decimal": ["1.50", "12345678901234567890.123456789", "1e-3", "-0.0"],
    "int256": ["-2", "123456789012345678901234567890", "1.5"],
    "uint256": ["2", "-2"],
    "array": ["[]", "[ 1, 2.50 ]", "[-0.0,0e9,1e-400]", "[1e400]", f"[{'1' * 49}]", '["\\ud83d"]', '[{"a":1,"a":2}]'],
    "map": [
        "{}",
        '{ "b" : 1, "a" : [ ] }',
        '{"k":"1","k":"2"}',
        '{"a":{"x":1,"x":2},"k":"z"}',
        '{"k":"v\\ud83d"}',
        '{"k":1e400}',
        '{"k":-0.0,"n":1234567890123456789012345678901234567890123456789}',
    ],
    "any": ["1", "1.50", '"a"', "true", "[ 1 ]", '{ "a" : 1 }', "1e400", '"\\ud83d"', "null"],
}
# Columns that take a field of each type; `JSON` and `Map` read what is inside.
COLUMNS: dict[str, list[str]] = {
    "string": ["String", "Nullable(UUID)"],
    "int": ["Int64", "String"],
    "uint": ["UInt64"],
    "float": ["Float64", "Float32"],
    "bool": ["Bool"],
    "decimal": ["Decimal(60, 20)"],
    "int256": ["Int256"],
    "uint256": ["UInt256"],
    "array": ["String", "Array(Float64)", "Array(String)"],
    "map": ["String", "Map(String, String)", "JSON"],
    "any": ["String", "UInt8", "Array(Int8)"],
}


@pytest.mark.parametrize("field_type", VALUES)
def test_a_field_that_is_passed_on_is_written_as_without_a_transform(spark: SparkSession, field_type: str) -> None:
    for column_type in COLUMNS[field_type]:
        columns = [mapping("f", column_type)]
        declared = source("s", fields(f=field_type))
        direct = PipelineConfig.model_validate(definition("exact", declared, sink(columns)))
        values = [f'{{"f":{value}}}'.encode() for value in VALUES[field_type]]
        assert outcomes(spark, config(columns, passed_on(f=field_type), f=field_type), values) == outcomes(
            spark, direct, values
        )


PASSED_ON = config(
    [mapping("id", "Int32"), mapping("m", "Map(String, String)"), mapping("m", "Nullable(JSON)", "j")],
    passed_on(**TYPES),
    **TYPES,
)


def test_members_of_an_object_that_is_passed_on_are_all_there_or_the_record_is_a_dead_letter(
    spark: SparkSession,
) -> None:
    found = outcomes(
        spark,
        PASSED_ON,
        [
            b'{"id":1,"m":{"k":"1","k":"2"}}',
            b'{"id":2,"m":{"a":{"x":1,"x":2},"k":"z"}}',
            b'{"id":3,"m":{"k":"v\\ud83d"}}',
            b'{"id":4,"m":{"k":"ok"}}',
        ],
    )
    assert found == [
        ("mapping", "column 'm' (Map(String, String)): k: is given twice"),
        ("mapping", "column 'j' (Nullable(JSON)): a.x: is given twice"),
        ("mapping", "column 'm' (Map(String, String)): k: holds half a surrogate pair, which is not a character"),
        (4, {"k": "ok"}, '{"k":"ok"}'),
    ]


# An object of a record that an expression opens, and what of it becomes a row or the reason of a dead letter.
MEMBERS: list[tuple[bytes, Any]] = [
    (b'{"k":"1","k":"2"}', "k: is given twice"),
    (b'{"a":{"x":1,"x":2},"k":"z"}', "a.x: is given twice"),
    (b'{"a":[0,{"x":[{"y":1,"\\u0079":2}]}]}', "a[1].x[0].y: is given twice"),
    (b'{"k":"v\\ud83d"}', "k: holds half a surrogate pair, which is not a character"),
    (b'{"z": 1, "k":"ok \\ud83d\\ude00", "a" : [ 1 ]}', '{"z":1,"k":"ok \U0001f600","a":[1]}'),
    (b"{}", "{}"),
]
OPENED = config([mapping("m", "String")], stateless_transform("s", ("m", "m ?? {}", "map")), m="map")


def test_an_object_that_is_opened_is_all_there_or_the_record_is_a_dead_letter(spark: SparkSession) -> None:
    found = outcomes(spark, OPENED, [b'{"m":%s}' % members for members, _ in MEMBERS])
    for outcome, (members, expected) in zip(found, MEMBERS, strict=True):
        if members.startswith(b'{"z"') or members == b"{}":
            assert outcome == (expected,), members
        else:
            stage, reason = outcome
            assert (stage, reason.startswith("output 'm', m ?? {}: m: ")) == ("transform", True)
            assert expected in reason, members


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


# Arrays whose numbers come out as they were written.
KEPT_NUMBERS = [
    "[-0.0,-0,-0e9,0e9]",
    f"[{'9' * 60}]",
    "[12345678901234567890.25,123456789012345678901e-5,123456789012345678.00E0]",
    f"[0.{'12345' * 9},1.{'0' * 60}]",
    "[18446744073709551615,-9223372036854775808,9007199254740993]",
    "[1e-7,1.7976931348623157e308,4.9406564584124654e-324,1.234567890123456789e300]",
    "[1e-400,100e-2147483647,0e99999999999]",
]
# The text of an array, and the beginning of the reason.
LOST_NUMBERS = {
    "[1e400]": "[0]: 1e400 does not fit into a 64-bit float",
    "[1,-1e400]": "[1]: -1e400 does not fit into a 64-bit float",
    "[100e2147483647]": "[0]: 100e2147483647 does not fit into a 64-bit float",
    f"[{'1' * 400}]": "[0]: 1111",
}
ARRAYS = config([mapping("a", "String")], stateless_transform("s", ("a", "a[0:]", "array")), a="array")


def test_numbers_that_are_passed_on_keep_their_digits(spark: SparkSession) -> None:
    found = outcomes(spark, ARRAYS, [f'{{"a":{text}}}'.encode() for text in KEPT_NUMBERS])
    assert [text for (text,) in found] == KEPT_NUMBERS


def test_a_number_that_no_float_holds_makes_the_record_a_dead_letter(spark: SparkSession) -> None:
    found = outcomes(spark, ARRAYS, [f'{{"a":{text}}}'.encode() for text in LOST_NUMBERS])
    for (stage, reason), (text, start) in zip(found, LOST_NUMBERS.items(), strict=True):
        assert stage == "transform", text
        assert reason.startswith(f"output 'a', a[0:]: a: {start}"), text


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
