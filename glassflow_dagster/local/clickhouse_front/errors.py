"""The engine's errors with the status that ClickHouse's HTTP interface gives them."""

import re

_CODE = re.compile(r"Code: (\d+)\. DB::Exception")

# An exception of the engine without a code of ClickHouse: STD_EXCEPTION.
_WITHOUT_CODE = 1001

NOT_IMPLEMENTED = 48
SYNTAX_ERROR = 62
UNKNOWN_SETTING = 115
INCORRECT_DATA = 117
SESSION_NOT_FOUND = 372
SESSION_IS_LOCKED = 373
INVALID_SESSION_TIMEOUT = 374

# From ClickHouse's exceptionCodeToHTTPStatus; every other code is a 500.
_STATUS_OF_CODES = {
    400: (6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123, 167, 168, 223, 321, 376, 427, 441, 675, 676),
    401: (194,),
    403: (192, 193, 497, 512, 516),
    404: (46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511),
    408: (159,),
    411: (381,),
    413: (229,),
    415: (779,),
    501: (48,),
    503: (76, 209, 439),
}
_STATUS = {code: status for status, codes in _STATUS_OF_CODES.items() for code in codes}


class EngineError(Exception):
    """A statement that failed; `code` is ClickHouse's number, the text is what a ClickHouse server would send."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = _CODE.search(text)
        self.code = int(found[1]) if found else _WITHOUT_CODE

    @property
    def status(self) -> int:
        """The HTTP status of an answer that carries this error."""
        return _STATUS.get(self.code, 500)


def engine_error(code: int, text: str) -> EngineError:
    """An error of the front itself, in ClickHouse's words."""
    return EngineError(f"Code: {code}. DB::Exception: {text}")
