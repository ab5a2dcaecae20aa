import pytest

from glassflow_dagster.local.clickhouse_front.statement import Insert, split_format, split_insert


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"INSERT INTO t FORMAT Native\n\x01\x02", Insert("INSERT INTO t ", "", "Native", b"\x01\x02")),
        (b"insert into t (a, b) format CSV 1,2", Insert("insert into t (a, b) ", "", "CSV", b"1,2")),
        (b"INSERT INTO t FORMAT CSV\n\n1,2", Insert("INSERT INTO t ", "", "CSV", b"\n1,2")),
        (b"INSERT INTO t (`format`) VALUES (1)", Insert("INSERT INTO t (`format`) ", "", "Values", b" (1)")),
        (
            b"INSERT INTO t (format, values) VALUES (1)",
            Insert("INSERT INTO t (format, values) ", "", "Values", b" (1)"),
        ),
        (
            b"INSERT INTO t SETTINGS x = 'FORMAT CSV' FORMAT JSONEachRow {\"a\": 1}",
            Insert("INSERT INTO t ", "SETTINGS x = 'FORMAT CSV' ", "JSONEachRow", b'{"a": 1}'),
        ),
        (
            b"-- FORMAT CSV\n/* VALUES */ INSERT INTO t FORMAT TSV\n1",
            Insert("-- FORMAT CSV\n/* VALUES */ INSERT INTO t ", "", "TSV", b"1"),
        ),
        (b"INSERT INTO t FORMAT CSV\r\n1", Insert("INSERT INTO t ", "", "CSV", b"1")),
        (b"INSERT INTO t SELECT 1 FORMAT CSV", None),
        (b"INSERT INTO t WITH 1 AS x SELECT x", None),
        (b"INSERT INTO t FROM INFILE 'f' FORMAT CSV", None),
        (b"SELECT 'INSERT INTO t FORMAT CSV'", None),
        (b"", None),
    ],
)
def test_the_data_of_an_insert_begins_after_its_format(text: bytes, expected: Insert | None) -> None:
    assert split_insert(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"SELECT 1", ("SELECT 1", "TSV")),
        (b"SELECT 1 FORMAT JSON", ("SELECT 1 ", "JSON")),
        (b"SELECT 1\n FORMAT Native", ("SELECT 1\n ", "Native")),
        (b"SELECT 1 FORMAT CSV SETTINGS max_threads = 1", ("SELECT 1  SETTINGS max_threads = 1", "CSV")),
        (b"SELECT 1 SETTINGS max_threads = 1 FORMAT CSV;", ("SELECT 1 SETTINGS max_threads = 1 ;", "CSV")),
        (b"SELECT format FROM t", ("SELECT format FROM t", "TSV")),
        (b"SELECT ' FORMAT JSON'", ("SELECT ' FORMAT JSON'", "TSV")),
        (b"SELECT 1 -- FORMAT JSON", ("SELECT 1 -- FORMAT JSON", "TSV")),
        (b"SELECT * FROM (SELECT 1 FORMAT CSV)", ("SELECT * FROM (SELECT 1 FORMAT CSV)", "TSV")),
    ],
)
def test_only_a_querys_own_format_clause_counts(text: bytes, expected: tuple[str, str]) -> None:
    assert split_format(text, "TSV") == expected
