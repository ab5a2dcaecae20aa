"""Strict JSON decoding: valid records, and the reason of each dead letter."""

from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.source import SchemaField, Source
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from tests.stream.stages.bad_bytes import NOT_UTF_8, UTF_8

FIELDS = [
    SchemaField(name="id", type="string"),
    SchemaField(name="n", type="int"),
    SchemaField(name="f", type="float", required=False),
    SchemaField(name="u", type="uint", required=False),
    SchemaField(name="b", type="bool", required=False),
    SchemaField(name="a.b", type="string", required=False),
    SchemaField(name="list", type="array", required=False),
    SchemaField(name="m", type="map", required=False),
    SchemaField(name="m.k", type="string", required=False),
]

PLAIN = Source(
    type="kafka", source_id="s", topic="t", connection_params=KafkaConnection(brokers=("b:1",)), schema_fields=FIELDS
)

WITH_HEADERS = "i int, value binary, headers array<struct<key string, value binary>>"


def decoded(spark: SparkSession, values: list[bytes | None]) -> list[Row]:
    records = spark.createDataFrame([(index, value) for index, value in enumerate(values)], "i int, value binary")
    return decode(records, [decoder_of(PLAIN, FIELDS, "")]).orderBy("i").select("fields.*", "error").collect()


ACCEPTED: list[tuple[bytes, dict[str, object]]] = [
    (b'{"id":"x","n":1}', {}),
    (b'{"n":1,"more":{"id":2},"id":"x"}', {}),
    (b'{"id":"x","n":1.0}', {}),
    (b'{"id":"x","n":1,"f":2}', {"f": 2.0}),
    (b'{"id":"x","n":1,"f":null}', {}),
    (b'{"id":"x","n":1,"u":18446744073709551615}', {"u": Decimal(18446744073709551615)}),
    (b'{"id":"x","n":1,"b":false}', {"b": False}),
    (b'{"id":"x","n":1,"a":{"b":"nested"}}', {"a.b": "nested"}),
    (b'{"id":"x","n":1,"a.b":"literal","a":{"b":"nested"}}', {"a.b": "literal"}),
    (b'{"id":"x","n":1,"a":{"b":"nested"},"a.b":"literal"}', {"a.b": "literal"}),
    (b'{"id":"x","n":1,"list":[1, {"q":2.50}]}', {"list": '[1, {"q":2.50}]'}),
    ('{"id":"x","n":1,"m":{"k":"ü"}}'.encode(), {"m": '{"k":"ü"}', "m.k": "ü"}),
    (b'{"id":"x","n":1,"list":' + b"[" * 999 + b"]" * 999 + b"}", {"list": "[" * 999 + "]" * 999}),
    (b'{"id":"x","n":1,"f":0.' + b"5" * 998 + b"}", {"f": 5 / 9}),
]


def test_good_records_become_typed_fields(spark: SparkSession) -> None:
    rows = decoded(spark, [value for value, _ in ACCEPTED])
    for row, (value, more) in zip(rows, ACCEPTED, strict=True):
        assert row.error is None, value
        found = {name: row[name] for name in ("f", "u", "b", "a.b", "list", "m", "m.k") if row[name] is not None}
        assert (row.id, row.n, found) == ("x", 1, more), value


REFUSED: list[tuple[bytes | None, str]] = [
    (None, "the record has no value"),
    (b"", "the record's value is empty"),
    (b"nope", "invalid JSON: 'nope' is no value (a text needs double quotes), at byte 0"),
    (b'{"id":"x","n":1', "invalid JSON: it ends too early, at byte 15"),
    (b'{"id":"x","n":1} {}', "invalid JSON: something follows the object"),
    (b'{"id":"x","n":1,"f":NaN}', "invalid JSON: NaN is not a number in JSON (send null, or a text), at byte 23"),
    (b'{"id":"\xff","n":1}', "invalid JSON: not in UTF-8, at byte 7"),
    (b"[1]", "not a JSON object but array"),
    (b'{"id":"x"}', "field 'n' is missing"),
    (b'{"id":null,"n":1}', "field 'id' is null"),
    (b'{"id":1,"n":1}', "field 'id': expected string, got number"),
    (b'{"id":"x","n":"1"}', "field 'n': expected int, got string"),
    (b'{"id":"x","n":3.7}', "field 'n': expected int, got 3.7"),
    (
        b'{"id":"x","n":true}',
        "field 'n': expected int, got bool (declare it as bool, and output b ? 1 : 0 in a transform)",
    ),
    (
        b'{"id":"x","n":1,"b":0}',
        "field 'b': expected bool, got number (declare it as int, and output n == 1 in a transform)",
    ),
    (b'{"id":"x","n":9223372036854775808}', "field 'n': 9223372036854775808 does not fit into 64 bits"),
    (b'{"id":"x","n":1e999999999}', "field 'n': 1e999999999 does not fit into 64 bits"),
    (b'{"id":"x","n":1e2147483647}', "field 'n': 1e2147483647 does not fit into 64 bits"),
    (b'{"id":"x","n":100e2147483647}', "field 'n': "),
    (b'{"id":"x","n":1e99999999999999999999}', "field 'n': 1e99999999999999999999 does not fit into 64 bits"),
    (b'{"id":"x","n":1e-99999999999999999999}', "field 'n': expected int, got 1e-99999999999999999999"),
    (b'{"id":"x","n":1,"u":10e2147483647}', "field 'u': "),
    ('{"id":"x","n":1}'.encode("utf-16"), "invalid JSON: not in UTF-8"),
    ('{"id":"x","n":1}'.encode("utf-16-le"), "invalid JSON: not in UTF-8"),
    (b'{"id":"x","n":1,"u":-1}', "field 'u': expected uint, got -1"),
    (b'{"id":"x","n":1,"f":"NaN"}', "field 'f': expected float, got string"),
    (b'{"id":"x","n":1,"f":1e999}', "field 'f': 1e999 does not fit into a 64-bit float"),
    (
        b'{"id":"x","n":1,"f":9007199254740993}',
        "field 'f': 9007199254740993 has more digits than a 64-bit float holds (declare it as int, uint or decimal)",
    ),
    (b'{"id":"x","n":1,"f":-1' + b"0" * 308 + b"}", "field 'f': -1000000000"),
    (b'{"id":"x","n":1,"f":1e-400}', "field 'f': 1e-400 is too small for a 64-bit float, which would make it 0"),
    (b'{"id":"x","n":1,"f":-0.1e-99999999999}', "field 'f': -0.1e-99999999999 is too small for a 64-bit float"),
    (b'{"id":"x","n":1,"list":{}}', "field 'list': expected array, got object"),
    (b'{"id":"x","n":1,"id":"y"}', "field 'id': is given twice"),
    (b'{"id":"\\ud800","n":1}', "field 'id': holds half a surrogate pair"),
    (b"[" * 2000, "not a JSON object but array"),
    (b'{"id":' + b"[" * 2000, "invalid JSON: arrays and objects more than 1000 deep"),
    (b'{"id":"x","n":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid JSON: arrays and objects more than"),
    (b'{"id":"x","n":1,"more":' + b'{"a":' * 100_000, "invalid JSON: arrays and objects more than 1000 deep"),
    (b'{"id":"x","n":' + b"1" * 1_000_000 + b"}", "invalid JSON: a number of more than 1000 digits"),
    (b'{"id":"x","n":1,"more":1e' + b"9" * 1_000_000 + b"}", "invalid JSON: a number of more than 1000 digits"),
    (b'{"id":"x","n":1,"' + b"k" * 1_000_000 + b'":1}', "invalid JSON: a name of more than 50000 bytes"),
]


# JSON with a mistake -> what is said, in no word of the parser's.
MISTAKES: dict[bytes, str] = {
    b'{"f":-Infinity}': "-Infinity is not a number in JSON (send null, or a text)",
    b'{"f":[NaN]}': "NaN is not a number in JSON (send null, or a text)",
    b'{"f":-NaN}': "no digit follows a minus sign",
    b'{"f":+1}': "a number begins with +",
    b'{"f":-01}': "a number begins with a needless 0",
    b'{"f":.5}': "'.' where a value belongs",
    b'{"f":5.}': "no digit follows the point of a number",
    b'{"f":1e}': "no digit follows the e of a number",
    b'{"f":0x1F}': "'x' where a comma or the end belongs",
    b'{"f":': "it ends too early",
    b'{"f":"\\': "it ends too early",
    b'{"f":1,}': "'}' where a name in double quotes belongs",
    b"{'f':1}": "''' where a name in double quotes belongs",
    b'{"f" 1}': "'1' where a colon belongs",
    b'{"f":[1 2]}': "'2' where a comma or the end belongs",
    b'{"f":[1,]}': "']' where a value belongs",
    b'{"f":[1}': "'}' where ']' belongs",
    b'{"f":1}}': "'}' closes nothing",
    b'{"f":True}': "'True' is no value (a text needs double quotes)",
    '{"f":\u00e9}'.encode(): "a character that is in no text (a text needs double quotes)",
    b'{"f":1}\0': "a control character (code 0) that is in no text",
    b'{"f":"a\nb"}': "a text has a control character (code 10) that is not escaped",
    b'{"f":"a\\xb"}': "the escape \\x, which JSON does not have",
    b'{"f":"\\u12"}': "\\u without four hexadecimal digits",
    b'// f\n{"f":1}': "a comment, which JSON does not have",
    b'{/* f */"f":1}': "a comment, which JSON does not have",
}


def test_what_is_wrong_with_json_is_said_in_its_own_words(spark: SparkSession) -> None:
    rows = decoded(spark, [*MISTAKES])
    found = {value: row.error.reason.rpartition(", at byte ")[0] for value, row in zip(MISTAKES, rows, strict=True)}
    assert found == {value: f"invalid JSON: {words}" for value, words in MISTAKES.items()}


def test_refused_records_say_why(spark: SparkSession) -> None:
    rows = decoded(spark, [value for value, _ in REFUSED])
    for row, (value, reason) in zip(rows, REFUSED, strict=True):
        assert row.error is not None, value
        assert row.error.stage == "decode"
        assert row.error.reason.startswith(reason), value
        assert row.id is None


# A record with some bytes in a text, in a name, and in what no field takes or a field keeps as it is.
WITH_BYTES = [
    b'{"id":"%s","n":1}',
    b'{"id":"x","n":1,"%s":2}',
    b'{"id":"x","n":1,"more":["%s"]}',
    b'{"id":"x","n":1,"m":{"k":"%s"}}',
    b'{"id":"x","n":1,"m":{"%s":1}}',
    # Only Jackson reads names with escapes.
    b'{"\\u0069d":"x","n":1,"list":["%s"]}',
]


def test_bytes_that_are_not_utf_8_are_refused_wherever_they_are(spark: SparkSession) -> None:
    """Otherwise C0 AF was written as "/", and a valid event with "/" was its duplicate."""
    values = [record % bad for record in WITH_BYTES for bad in NOT_UTF_8]
    for row, value in zip(decoded(spark, [*values]), values, strict=True):
        assert row.error is not None, value
        assert row.error.reason.startswith("invalid JSON: not in UTF-8, at byte "), (value, row.error.reason)


def test_the_first_and_last_characters_of_each_length_are_read(spark: SparkSession) -> None:
    rows = decoded(spark, [(record % UTF_8.encode()) for record in WITH_BYTES])
    assert [row.error for row in rows] == [None] * len(WITH_BYTES)
    assert rows[0].id == UTF_8


@pytest.mark.parametrize("count", [1, 3])
def test_a_good_record_after_a_bad_one_is_not_touched_by_it(spark: SparkSession, count: int) -> None:
    rows = decoded(spark, [b'{"id":"bad"'] * count + [b'{"id":"x","n":1}'])
    assert rows[-1].id == "x"
    assert rows[-1].error is None


def test_behind_a_schema_id_a_field_need_not_be_there_unless_the_definition_says_so(spark: SparkSession) -> None:
    fields = (SchemaField(name="id", type="string", required=True), SchemaField(name="n", type="int"))
    source = PLAIN.model_copy(update={"schema_registry": SchemaRegistry(url="http://r"), "schema_fields": fields})
    header = b"\0\0\0\0\7"
    values = [header + b'{"id":"x"}', header + b'{"n":1}', header, b"\0", b'{"id":"x"}', None]
    records = spark.createDataFrame([(index, value, None) for index, value in enumerate(values)], WITH_HEADERS)
    good, *refused = (
        decode(records, [decoder_of(source, source.fields, "")]).orderBy("i").select("fields", "error").collect()
    )
    assert (good.error, good.fields.id, good.fields.n) == (None, "x", None)
    assert [row.error.reason.split(":")[0] for row in refused] == [
        "field 'id' is missing",
        "the value is too short to hold a schema id and JSON",
        "the value is too short to hold a schema id and JSON",
        "no schema id",
        "the record has no value",
    ]


def test_an_id_of_sixteen_bytes_or_in_a_header_is_understood(spark: SparkSession) -> None:
    source = PLAIN.model_copy(update={"schema_registry": SchemaRegistry(url="http://r"), "schema_fields": FIELDS[:1]})
    event = b'{"id":"x"}'
    in_header = [("trace", b"1"), ("__value_schema_id", b"\1" + bytes(16))]
    rows = [(0, b"\1" + bytes(16) + event, []), (1, event, in_header), (2, event, [("trace", b"1")])]
    records = spark.createDataFrame(rows, WITH_HEADERS)
    found = decode(records, [decoder_of(source, source.fields, "")]).orderBy("i").select("fields.id", "error").collect()
    assert [row.id for row in found] == ["x", "x", None]
    assert [row.error is None for row in found] == [True, True, False]


def test_a_tombstone_behind_a_good_record_is_a_dead_letter(spark: SparkSession) -> None:
    """Not a second row of the record before it, whose value Spark's generated code still has."""
    source = PLAIN.model_copy(update={"schema_registry": SchemaRegistry(url="http://r"), "schema_fields": FIELDS[:1]})
    records = spark.createDataFrame([(0, b"\0\0\0\0\7" + b'{"id":"x"}', None), (1, None, None)], WITH_HEADERS)
    decoded_records = decode(records.coalesce(1), [decoder_of(source, source.fields, "")])
    good, tombstone = decoded_records.select("fields.id", "error.reason").collect()
    assert (good.id, good.reason) == ("x", None)
    assert (tombstone.id, tombstone.reason) == (None, "the record has no value")


def test_a_number_whose_exponent_is_the_greatest_there_is_is_a_dead_letter(spark: SparkSession) -> None:
    field = SchemaField(name="d", type="decimal")
    source = PLAIN.model_copy(update={"schema_fields": (field,)})
    records = spark.createDataFrame([(b'{"d": 100E2147483647}',), (b'{"d": 100E2147483640}',)], "value binary")
    rows = decode(records, [decoder_of(source, [field], "")]).select("error.reason").collect()
    assert all("more than 76 digits" in row.reason for row in rows)
