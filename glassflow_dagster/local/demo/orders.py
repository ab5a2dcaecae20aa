"""The demo's generated events: orders, and the profiles of the users who place them.

The events are the same on every call. Their times lie in one morning; the join does not use them.
"""

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from glassflow_dagster.local.demo.events import with_resent, with_resent_count

ORDERS_TOPIC = "orders"
USERS_TOPIC = "user_events"

_ORDERS = 10_000
_USERS = 2_000
_UNKNOWN_USERS = 60  # users with orders and without an event
_GUEST_SHARE = 0.02  # of the orders; they have no user
_MOVED_SHARE = 0.2  # of the users; they have a second event, with another email address
_MOST_ITEMS = 15
_RESENT_WITHIN = 500
_SEED = 2025
_MORNING = datetime(2025, 7, 1, 8, tzinfo=UTC)
_FIRST_NAMES = ("Ada", "Björn", "Chloé", "Dimitri", "Emeka", "Fatima", "Grace", "Haruto", "Ines", "Jan")
_LAST_NAMES = ("Abe", "Brown", "Costa", "Diaz", "Eze", "Fischer", "García", "Hansen", "Ivanova", "Jones")


@cache
def orders() -> tuple[dict[str, Any], ...]:
    """Return the orders, of 1 to 15 items each; guests have a null user_id, unknown users have no user event."""
    draw = random.Random(_SEED)
    users = [_user_id(number) for number in range(_USERS + _UNKNOWN_USERS)]
    return tuple(
        {
            "order_id": _uuid(draw),
            "user_id": None if draw.random() < _GUEST_SHARE else draw.choice(users),
            "amount": draw.randint(1, _MOST_ITEMS),
            "price": draw.randrange(500, 50_000) / 100,
            "created_at": _at(number),
        }
        for number in range(_ORDERS)
    )


@cache
def user_events() -> tuple[dict[str, Any], ...]:
    """Return an event for each known user, and a second event for those whose email address changed."""
    draw = random.Random(_SEED + 1)
    signed_up = range(_USERS)
    users_with_new_address = draw.sample(signed_up, int(_USERS * _MOVED_SHARE))
    # The hosts of the addresses: of the first events, then of the second ones.
    hosts = ["example.com"] * _USERS + ["example.org"] * len(users_with_new_address)
    return tuple(
        {
            "event_id": _uuid(draw),
            "user_id": _user_id(number),
            # There are ten names of each kind.
            "name": f"{_FIRST_NAMES[number % 10]} {_LAST_NAMES[number // 10 % 10]}",
            "email": f"user{number}@{host}",
            "created_at": _at(index),
        }
        for index, (number, host) in enumerate(zip([*signed_up, *users_with_new_address], hosts, strict=True))
    )


def order_events() -> Iterator[bytes]:
    """Yield the orders as JSON, a tenth of them a second time some events later."""
    return with_resent([json.dumps(order).encode() for order in orders()], _SEED, _RESENT_WITHIN)


def order_event_count() -> int:
    """Return the number of events that `order_events` yields."""
    return with_resent_count(len(orders()))


def user_event_events() -> Iterator[bytes]:
    """Yield the user events as JSON, a tenth of them a second time some events later."""
    return with_resent([json.dumps(event).encode() for event in user_events()], _SEED + 1, _RESENT_WITHIN)


def user_event_count() -> int:
    """Return the number of events that `user_event_events` yields."""
    return with_resent_count(len(user_events()))


@cache
def _user_id(number: int) -> str:
    return _uuid(random.Random(f"{_SEED} user {number}"))


def _uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def _at(seconds: int) -> str:
    """Return the time so many seconds after the beginning of the morning, in ISO 8601."""
    return (_MORNING + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
