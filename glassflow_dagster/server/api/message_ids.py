"""The ids of dead letters in answers: each says which one it is, and where it is in the order of its checkpoint."""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from glassflow_dagster.server.api.api_error import bad_request
from glassflow_dagster.stores.bookkeeping.dead_letter_table import ORDER_BY_BATCH, DeadLetter
from glassflow_dagster.stores.clickhouse.identifiers import quote_text

# The checkpoint, and the order within it: together they identify a dead letter.
Key = tuple[str, int, str, int, int, int, str]
_ORDER = ", ".join(ORDER_BY_BATCH)
_LARGEST = 2**63
_KINDS = (str, int, str, int, int, int, str)


def message_id(letter: DeadLetter) -> str:
    """Return the id of a dead letter."""
    key: Key = (
        letter.checkpoint_id, letter.batch_id, letter.topic, letter.partition, letter.offset, letter.item,
        letter.only_table,
    )  # fmt: skip
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def parse(text: str) -> Key:
    """Return what an id stands for; raises `ApiError` for one that this API has not given."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return _key(json.loads(base64.b64decode(padded, altchars=b"-_", validate=True)))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise bad_request("message_id is invalid; take it from dlq/list", message_id=text[:200]) from None


def _key(found: Any) -> Key:
    """Return a parsed id; raises ValueError or TypeError for values that are not of its columns."""
    if [type(part) for part in found] != [*_KINDS]:
        raise ValueError("has other parts")
    for part in found:
        if isinstance(part, int) and abs(part) >= _LARGEST:
            raise ValueError("has a number that no column holds")
        if isinstance(part, str):
            part.encode()  # half a surrogate pair has no encoding
    UUID(found[0])
    key: Key = tuple(found)
    return key


def one_of(keys: Iterable[Key]) -> str:
    """Return the SQL condition of these dead letters."""
    return f"(toString(checkpoint_id), {_ORDER}) IN ({', '.join(map(_literal, keys))})"


def after(key: Key) -> str:
    """Return the SQL condition of the dead letters behind another one: the next of its checkpoint, and later ones.

    It selects among those of the newest checkpoint.
    """
    return f"(checkpoint_id != '{UUID(key[0])}' OR ({_ORDER}) > {_literal(key[1:])})"


def _literal(key: tuple[Any, ...]) -> str:
    return f"({', '.join(quote_text(part) if isinstance(part, str) else str(part) for part in key)})"
