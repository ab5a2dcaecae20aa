import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from glassflow_dagster.stores.clickhouse.errors import ErrorKind, classify, error_code, explain, is_access_denied


def refusal(code: int | None, text: str = "DB::Exception: no", name: str | None = None) -> DatabaseError:
    return DatabaseError(text, code=code, name=name)


@pytest.mark.parametrize(
    "code", [3, 159, 198, 201, 202, 203, 209, 210, 236, 241, 242, 252, 279, 285, 319, 364, 425, 999, 1000]
)
def test_passing_troubles_are_retried(code: int) -> None:
    assert classify(refusal(code)) is ErrorKind.RETRY


@pytest.mark.parametrize("code", [6, 26, 27, 38, 41, 117, 131, 135, 153, 349, 395, 469])
def test_errors_of_values_belong_to_rows(code: int) -> None:
    assert classify(refusal(code)) is ErrorKind.ROW


@pytest.mark.parametrize("code", [16, 20, 43, 44, 47, 53, 60, 81, 164, 192, 497, 516])
def test_errors_that_a_person_must_fix_stop_the_table(code: int) -> None:
    assert classify(refusal(code)) is ErrorKind.TABLE


def test_a_view_that_refuses_a_value_stops_the_table_because_the_target_has_the_rows_already() -> None:
    text = "DB::Exception: Cannot parse date: while pushing to view a.v. (CANNOT_PARSE_DATE)"
    assert classify(refusal(38, text)) is ErrorKind.TABLE


@pytest.mark.parametrize(("code", "answer"), [(123_456, ErrorKind.TABLE), (241, ErrorKind.RETRY)])
def test_any_error_of_a_view_that_does_not_pass_stops_the_table(code: int, answer: ErrorKind) -> None:
    assert classify(refusal(code, "DB::Exception: no: while pushing to view a.v")) is answer


def test_too_many_partitions_in_one_block_are_no_matter_of_waiting() -> None:
    text = "Too many partitions for single INSERT block (more than 100)"
    assert classify(refusal(252, text)) is ErrorKind.PARTITIONS


@pytest.mark.parametrize("error", [refusal(None), OperationalError("reset"), TimeoutError()])
def test_what_has_no_code_is_ambiguous(error: Exception) -> None:
    assert classify(error) is ErrorKind.RETRY


@pytest.mark.parametrize("code", [36, 123_456])
def test_a_code_that_is_on_no_list_is_unknown(code: int) -> None:
    assert classify(refusal(code)) is ErrorKind.UNKNOWN


def test_a_code_is_found_in_the_text_when_the_header_is_lost() -> None:
    assert error_code(DatabaseError("HTTP status 200, Code: 241. DB::Exception: Memory limit")) == 241


def test_a_wrong_password_is_told_from_a_missing_right() -> None:
    assert is_access_denied(refusal(516))
    assert not is_access_denied(refusal(497))


def test_an_error_is_one_line_without_address_and_version() -> None:
    text = (
        "Received ClickHouse exception, code: 60, server response: Code: 60. DB::Exception: Table a.t\n does not "
        "exist. (UNKNOWN_TABLE) (version 26.9.2.1) (for url http://h:1)"
    )
    assert explain(refusal(60, text, "UNKNOWN_TABLE")) == "Table a.t does not exist (code 60, UNKNOWN_TABLE)"


def test_a_lost_connection_is_said_by_its_innermost_reason() -> None:
    error = OperationalError("Error HTTPConnectionPool(...)")
    error.__cause__ = RuntimeError("Max retries exceeded")
    error.__cause__.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert explain(error) == "ConnectionRefusedError: [Errno 111] Connection refused"
