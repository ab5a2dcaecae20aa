"""Drafts of pipelines whose topics were sampled; no server is needed."""

import json
from typing import Any

from glassflow_dagster.inference.draft import JoinChoice, Side, Target
from glassflow_dagster.inference.topic_sample import sample_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.steps import STEPS
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.samples import Sample

ORDERS = [
    {"order_id": f"o{number % 90}", "user_id": f"u{number % 7}", "amount": number % 90, "price": 1.5}
    for number in range(100)
]
USERS = [
    {"event_id": f"e{number}", "user_id": f"u{number}", "name": f"user {number}", "amount": 1} for number in range(7)
]
KAFKA = {"brokers": ["127.0.0.1:1"], "protocol": "PLAINTEXT"}


def side(topic: str, events: list[Any]) -> Side:
    """Return a topic with these events as its sample; the key is the best candidate."""
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    records = tuple(Record(topic, 0, offset, 0, None, value, ()) for offset, value in enumerate(values))
    found = Side(sample_of(topic, Sample(records, 1, len(records), complete=True), None))
    found.key = (found.sample.keys[0].name,) if found.sample.keys else ()
    return found


def draft(**parts: Any) -> Draft:
    """Return a draft of a topic of orders."""
    return Draft(kafka=dict(KAFKA), left=side("orders", ORDERS), topics={"orders": 1, "users": 1}, **parts)


def joined(**parts: Any) -> Draft:
    """Return a draft that joins orders with users, its join not yet answered."""
    return draft(right=side("users", USERS), **parts)


def answered() -> Draft:
    """Return a draft of which each step but the last is answered; its servers do not answer."""
    made = joined(join=JoinChoice("user_id", "user_id"), target=Target("analytics", "orders"))
    made.clickhouse = {
        "host": "127.0.0.1", "port": "9000", "http_port": "1", "database": "default", "username": "default",
        "password": "", "secure": False,
    }  # fmt: skip
    made.done = {step.name for step in STEPS} - {"review"}
    return made
