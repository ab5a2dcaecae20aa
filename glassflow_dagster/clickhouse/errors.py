"""What an error of ClickHouse means for an insert, and how to say it in one line.

RETRY: whether the rows are there is not certain, and the same request will make it so. ROW: a value is at fault, so
part of the block may still go in. PARTITIONS: the block has rows of too many partitions, and went nowhere. TABLE: no
block of this pipeline will go in until someone acts. UNKNOWN: a code on none of the lists, which were measured on
ClickHouse 26.9; the server may pass it, or a row is at fault.
"""

import re
from enum import Enum, auto

from clickhouse_connect.driver.exceptions import Error, OperationalError

from glassflow_dagster.errors import GlassflowError


class Answer(Enum):
    """What to do about an error."""

    RETRY = auto()
    ROW = auto()
    PARTITIONS = auto()
    TABLE = auto()
    UNKNOWN = auto()


class UnclearAnswer(OperationalError):
    """The status says done, and the body says something: an error that came when the status was out already."""


class ClickHouseUnreachable(GlassflowError):
    """The server gives no answer that can be relied on; look after the server and run again."""


class ClickHouseRefused(GlassflowError):
    """Server and client do not come together over TLS: a certificate is wrong, or one of them speaks none."""


class AccessDenied(GlassflowError):
    """The server knows no such user and password, or the user lacks a right."""


class InsertRefused(GlassflowError):
    """The table takes no rows of this pipeline until someone acts; nothing is lost, the batch will be replayed."""


class TooManyPartitions(InsertRefused):
    """A block has rows of more partitions than the server takes in one request; it went nowhere."""


class RowsRefused(GlassflowError):
    """Values in the block are at fault; halves of it tell which rows.

    `reason` is the server's text in one line. `certain` says that no row of the block went in: it was refused at the
    first attempt, so no earlier one can have arrived unnoticed.
    """

    def __init__(self, table: str, reason: str, *, certain: bool) -> None:
        self.reason = reason
        self.certain = certain
        super().__init__(f"{table} refuses values: {reason}")


class LimitReached(GlassflowError):
    """A limit on memory, time or rows ended a query: there is no answer, and nothing is known to be wrong."""


class TableProblem(GlassflowError):
    """The target is missing or does not fit the definition; one line per problem."""


# Parsing, conversion, constraints, and expressions of the table that throw: what a value can be guilty of.
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

# What a server under load, in a restart or without its Keeper says: the same question may be answered a moment later.
_PASSING_CODES = frozenset({
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

# What ends a query that asks too much, by a limit of its own, of the user's profile or of the server.
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
# The same code as "too many parts, wait for merges", but more partitions than one block may have stay too many.
_TOO_MANY_PARTITIONS = "Too many partitions for single INSERT block"

# An error from a view arrives after the target has its rows: halves under new tokens would double them.
_FROM_A_VIEW = "while pushing to view"

_PREFIXES = re.compile(
    r"^(?:(?:Received ClickHouse exception, code:|HTTP driver received HTTP status) \d+, server response: )?"
    r"(?:(?:Code: \d+\. )?DB::Exception: )*"
)
_ADDRESS = re.compile(r"\s*\(for url [^)]*\)\s*$")
_VERSION = re.compile(r"\s*\(version\s+(?:[^()]|\([^()]*\))*\)")
_SYMBOL = re.compile(r"[.\s]*\([A-Z][A-Z0-9_]+\)$")
_EMBEDDED_CODE = re.compile(r"\bCode: (\d+)\.")


def error_code(error: BaseException) -> int | None:
    """Give ClickHouse's number of an error; None where the server gave none, as for a lost connection."""
    if not isinstance(error, Error):
        return None
    if error.code is not None:
        return int(error.code)
    match = _EMBEDDED_CODE.search(str(error))
    return int(match[1]) if match else None


def classify(error: BaseException) -> Answer:
    """Tell what an insert's error calls for."""
    code, text = error_code(error), str(error)
    if isinstance(error, UnclearAnswer) or is_passing(error):
        return Answer.RETRY
    if code == _TOO_MANY_PARTS:
        return Answer.PARTITIONS if _TOO_MANY_PARTITIONS in text else Answer.RETRY
    if code in _TABLE_CODES or _FROM_A_VIEW in text:
        return Answer.TABLE
    return Answer.ROW if code in _ROW_CODES else Answer.UNKNOWN


def is_passing(error: BaseException) -> bool:
    """Whether a question may be answered when it is asked again: the connection, or the state of the server."""
    code = error_code(error)
    return code is None or code in _PASSING_CODES


def is_access_denied(error: BaseException) -> bool:
    """Whether the server does not accept the user and password."""
    return error_code(error) in _ACCESS_CODES


def is_right_missing(error: BaseException) -> bool:
    """Whether the user is known but may not do what was asked."""
    return error_code(error) in _RIGHTS_CODES


def explain(error: BaseException) -> str:
    """Say an error in one line: ClickHouse's own words and its code, or what became of the connection."""
    code = error_code(error)
    if code is None and error.__cause__ is not None:
        cause = innermost(error.__cause__)
        said = " ".join(str(cause).split())
        return f"{type(cause).__name__}: {said}" if said else type(cause).__name__
    text = _ADDRESS.sub("", " ".join(str(error).split()))
    text = _SYMBOL.sub("", _VERSION.sub("", _PREFIXES.sub("", text)).rstrip(" .")).rstrip(" .")
    name = getattr(error, "name", None)
    suffix = f" (code {code}{', ' + name if name else ''})" if code is not None else ""
    return text + suffix


def innermost(cause: BaseException) -> BaseException:
    """Give what lies under urllib3's layers: the innermost reason is the one that helps."""
    seen = {id(cause)}
    while True:
        # urllib3 hands on what it wraps in either of these ways.
        wrapped = (getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__)
        deeper = next((error for error in wrapped if isinstance(error, BaseException)), None)
        if deeper is None or id(deeper) in seen:
            return cause
        seen.add(id(deeper))
        cause = deeper
