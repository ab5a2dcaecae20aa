"""Errors of ClickHouse: their classification for inserts, and their text in one line.

The lists of codes were measured on ClickHouse 26.9.
"""

import re
from enum import Enum, auto

from clickhouse_connect.driver.exceptions import Error, OperationalError

from glassflow_dagster.errors import GlassflowError


class ErrorKind(Enum):
    """The kind of an error of an insert, by what the writer has to do."""

    RETRY = auto()  # the outcome is uncertain; repeating the request under the same token makes it certain
    ROW = auto()  # a value is at fault; the rest of the block may be inserted
    PARTITIONS = auto()  # the block has rows of too many partitions; none of it was inserted
    TABLE = auto()  # the table takes no block of this pipeline until the operator acts
    UNKNOWN = auto()  # a code on none of the lists: it may be transient, or a row is at fault


class ErrorInResponseBody(OperationalError):
    """A successful HTTP status with a body: an error that occurred after the status had been sent."""


class ClickHouseUnreachable(GlassflowError):
    """The server does not answer, or not reliably; fix the server and run again."""


class ClickHouseRefused(GlassflowError):
    """The connection must not be used: TLS fails, or the address leads to several servers with tables of their own."""


class AccessDenied(GlassflowError):
    """The server rejects the user and password, or the user lacks a right."""


class InsertRefused(GlassflowError):
    """The table takes no rows of this pipeline until the operator acts; no data is lost, the batch will be repeated."""


class TooManyPartitions(InsertRefused):
    """A block has rows of more partitions than the server takes in one request; none of it was inserted."""


class RowsRefused(GlassflowError):
    """The server rejected the block for values in it; inserting halves of the block finds the rows.

    reason: the server's text in one line.
    none_inserted: no row of the block was inserted, because it was rejected at the first attempt and no earlier attempt
        can have succeeded unnoticed.
    """

    def __init__(self, table: str, reason: str, *, none_inserted: bool) -> None:
        self.reason = reason
        self.none_inserted = none_inserted
        super().__init__(f"{table} refuses values: {reason}")


class LimitReached(GlassflowError):
    """A limit on memory, time or rows ended a query: there is no result, which does not mean that anything is wrong."""


class TableProblem(GlassflowError):
    """A table is missing or does not fit the definition; one line per problem."""


# Errors that a value can cause: parsing, conversion, constraints, and expressions of the table that throw.
_ROW_CODES = frozenset({
    6,  # CANNOT_PARSE_TEXT
    26,  # CANNOT_PARSE_QUOTED_STRING
    27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
    38,  # CANNOT_PARSE_DATE
    41,  # CANNOT_PARSE_DATETIME
    69,  # ARGUMENT_OUT_OF_BOUND
    70,  # CANNOT_CONVERT_TYPE
    72,  # CANNOT_PARSE_NUMBER
    117,  # INCORRECT_DATA
    131,  # TOO_LARGE_STRING_SIZE
    135,  # ZERO_ARRAY_OR_TUPLE_INDEX
    153,  # ILLEGAL_DIVISION
    190,  # SIZES_OF_ARRAYS_DONT_MATCH: of the columns of a flattened Nested
    349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
    376,  # CANNOT_PARSE_UUID
    395,  # FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
    407,  # DECIMAL_OVERFLOW
    467,  # CANNOT_PARSE_BOOL
    469,  # VIOLATED_CONSTRAINT
    675,  # CANNOT_PARSE_IPV4
    676,  # CANNOT_PARSE_IPV6
    691,  # UNKNOWN_ELEMENT_OF_ENUM
})  # fmt: skip

_TABLE_CODES = frozenset({
    8,  # THERE_IS_NO_COLUMN
    10,  # NOT_FOUND_COLUMN_IN_BLOCK
    16,  # NO_SUCH_COLUMN_IN_TABLE
    20,  # NUMBER_OF_COLUMNS_DOESNT_MATCH
    43,  # ILLEGAL_TYPE_OF_ARGUMENT
    44,  # ILLEGAL_COLUMN
    46,  # UNKNOWN_FUNCTION
    47,  # UNKNOWN_IDENTIFIER
    48,  # NOT_IMPLEMENTED
    50,  # UNKNOWN_TYPE
    53,  # TYPE_MISMATCH
    57,  # TABLE_ALREADY_EXISTS
    60,  # UNKNOWN_TABLE
    62,  # SYNTAX_ERROR
    73,  # UNKNOWN_FORMAT
    81,  # UNKNOWN_DATABASE
    82,  # DATABASE_ALREADY_EXISTS
    115,  # UNKNOWN_SETTING
    164,  # READONLY: the user has no right to write
    192,  # UNKNOWN_USER
    193,  # WRONG_PASSWORD
    194,  # REQUIRED_PASSWORD
    218,  # TABLE_IS_DROPPED
    291,  # DATABASE_ACCESS_DENIED
    344,  # SUPPORT_IS_DISABLED
    452,  # SETTING_CONSTRAINT_VIOLATION
    497,  # ACCESS_DENIED
    516,  # AUTHENTICATION_FAILED
})  # fmt: skip

# Errors of a server under load, in a restart or without its Keeper: the same request may succeed a moment later.
_TRANSIENT_CODES = frozenset({
    3,  # UNEXPECTED_END_OF_FILE
    159,  # TIMEOUT_EXCEEDED
    198,  # DNS_ERROR
    201,  # QUOTA_EXCEEDED
    202,  # TOO_MANY_SIMULTANEOUS_QUERIES
    203,  # NO_FREE_CONNECTION
    209,  # SOCKET_TIMEOUT
    210,  # NETWORK_ERROR
    236,  # ABORTED
    225,  # NO_ZOOKEEPER
    241,  # MEMORY_LIMIT_EXCEEDED
    242,  # TABLE_IS_READ_ONLY
    254,  # NO_ACTIVE_REPLICAS
    279,  # ALL_CONNECTION_TRIES_FAILED
    285,  # TOO_FEW_LIVE_REPLICAS
    286,  # UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    289,  # REPLICA_IS_NOT_IN_QUORUM: another replica has what this one is yet to fetch
    319,  # UNKNOWN_STATUS_OF_INSERT
    364,  # RECEIVED_ERROR_TOO_MANY_REQUESTS
    394,  # QUERY_WAS_CANCELLED
    425,  # SYSTEM_ERROR
    999,  # KEEPER_EXCEPTION
    1000,  # POCO_EXCEPTION
})  # fmt: skip

# Errors of a query that exceeds a limit: its own, of the user's profile or of the server.
LIMIT_CODES = frozenset({
    158,  # TOO_MANY_ROWS
    159,  # TIMEOUT_EXCEEDED
    160,  # TOO_SLOW
    191,  # SET_SIZE_LIMIT_EXCEEDED
    201,  # QUOTA_EXCEEDED
    241,  # MEMORY_LIMIT_EXCEEDED
    243,  # NOT_ENOUGH_SPACE: for what a query puts on the disk when memory is short
    307,  # TOO_MANY_BYTES
    396,  # TOO_MANY_ROWS_OR_BYTES
})  # fmt: skip

_ACCESS_CODES = frozenset({192, 193, 194, 516})
_RIGHTS_CODES = frozenset({164, 291, 497})

_TOO_MANY_PARTS = 252
# The same code as "too many parts, wait for merges"; but too many partitions of one block stay too many.
_TOO_MANY_PARTITIONS_TEXT = "Too many partitions for single INSERT block"

# The types in the header of a block in RowBinary are not those of the table, which was altered: no row causes that.
_OTHER_TYPE_TEXT = "(while reading header)"

# An error from a view occurs after the target has the rows: sending halves under new tokens would double them.
_FROM_A_VIEW_TEXT = "while pushing to view"
# The view's name follows, a part of it in backquotes where it needs them. Of a view behind a view it is the first one.
_VIEW = re.compile(rf"{_FROM_A_VIEW_TEXT} ((?:`(?:[^`\\]|\\.)+`|\w+)\.(?:`(?:[^`\\]|\\.)+`|\w+))")

_PREFIXES = re.compile(
    r"^(?:(?:Received ClickHouse exception, code:|HTTP driver received HTTP status) \d+, server response: )?"
    r"(?:(?:Code: \d+\. )?DB::Exception: )*"
)
_URL = re.compile(r"\s*\(for url [^)]*\)\s*$")
_VERSION = re.compile(r"\s*\(version\s+(?:[^()]|\([^()]*\))*\)")
_SYMBOLIC_CODE = re.compile(r"[.\s]*\([A-Z][A-Z0-9_]+\)$")
_EMBEDDED_CODE = re.compile(r"\bCode: (\d+)\.")


def error_code(error: BaseException) -> int | None:
    """Return ClickHouse's error code, from the error's field or else from its text (`Code: 241.`).

    None for an error without a code, such as a lost connection.
    """
    if not isinstance(error, Error):
        return None
    if error.code is not None:
        return int(error.code)
    match = _EMBEDDED_CODE.search(str(error))
    return int(match[1]) if match else None


def classify(error: BaseException) -> ErrorKind:
    """Return the kind of an insert's error, by its code and text.

    RETRY: an error in a response body, a transient one, or too many parts until merges catch up. PARTITIONS: the block
    has too many partitions. TABLE: a code that no row causes, an error of the block's types, or any error of a view,
    since the target may have the rows already. ROW: a code that a value causes. UNKNOWN: any other code.
    """
    code, text = error_code(error), str(error)
    if isinstance(error, ErrorInResponseBody) or is_transient(error):
        return ErrorKind.RETRY
    if code == _TOO_MANY_PARTS:
        return ErrorKind.PARTITIONS if _TOO_MANY_PARTITIONS_TEXT in text else ErrorKind.RETRY
    if code in _TABLE_CODES or _FROM_A_VIEW_TEXT in text or _OTHER_TYPE_TEXT in text:
        return ErrorKind.TABLE
    return ErrorKind.ROW if code in _ROW_CODES else ErrorKind.UNKNOWN


def failing_view(error: BaseException) -> str | None:
    """Return the materialized view in which an insert failed, quoted as SQL needs it; None for any other error."""
    match = _VIEW.search(str(error))
    return match[1] if match else None


def view_remedy(view: str, error: BaseException) -> str:
    """Return what to do about a view in which an insert failed."""
    if is_right_missing(error):
        return "grant what is missing to the view's definer, or to the pipeline's user if it has none"
    return (
        f"change its query to one that takes every row: ALTER TABLE {view} MODIFY QUERY SELECT ... (such as "
        "toFloat64OrZero(x) in place of a CAST), or correct the table that it writes to"
    )


def is_transient(error: BaseException) -> bool:
    """Return True for an error of the connection or of the server's state: the same request may succeed later."""
    code = error_code(error)
    return code is None or code in _TRANSIENT_CODES


def is_access_denied(error: BaseException) -> bool:
    """Return True when the server rejects the user and password."""
    return error_code(error) in _ACCESS_CODES


def is_right_missing(error: BaseException) -> bool:
    """Return True when the user is known but lacks the right."""
    return error_code(error) in _RIGHTS_CODES


def explain(error: BaseException) -> str:
    """Return an error's text in one line: ClickHouse's message with its code, or the cause of a lost connection.

    Prefixes, the URL, the server's version and the symbolic code at the end (`(NAME_OF_THE_ERROR)`) are removed.
    """
    code = error_code(error)
    if code is None and error.__cause__ is not None:
        cause = root_cause(error.__cause__)
        message = " ".join(str(cause).split())
        return f"{type(cause).__name__}: {message}" if message else type(cause).__name__
    text = _URL.sub("", " ".join(str(error).split()))
    text = _SYMBOLIC_CODE.sub("", _VERSION.sub("", _PREFIXES.sub("", text)).rstrip(" .")).rstrip(" .")
    name = getattr(error, "name", None)  # the symbolic code, such as MEMORY_LIMIT_EXCEEDED
    suffix = f" (code {code}{', ' + name if name else ''})" if code is not None else ""
    return text + suffix


def root_cause(cause: BaseException) -> BaseException:
    """Return the innermost error of a chain: that below urllib3's wrappers names the reason."""
    seen = {id(cause)}
    while True:
        # urllib3 keeps the error that it wraps in any of these attributes.
        wrapped = (getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__)
        deeper = next((error for error in wrapped if isinstance(error, BaseException)), None)
        if deeper is None or id(deeper) in seen:
            return cause
        seen.add(id(deeper))
        cause = deeper
