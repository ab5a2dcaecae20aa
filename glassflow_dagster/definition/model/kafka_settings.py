"""Settings of Kafka's clients that a definition may pass on; all others belong to the guarantees or to other keys."""

import re
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

from glassflow_dagster.definition.model.fields import setting_text

_MILLISECONDS = range(86_400_000 + 1)
_BYTES = range(2**31)


class PassedOn(NamedTuple):
    """A setting that is passed on.

    librdkafka: its name there; None where only Spark's consumer, which reads the stream, has it.
    values: the texts, or the whole numbers, that both clients take; None for any text.
    """

    librdkafka: str | None
    values: range | tuple[str, ...] | None


# Java's name of a setting -> how it is passed on. Sources: the clients' manuals (CONFIGURATION.md of librdkafka).
PASSED_ON: dict[str, PassedOn] = {
    "client.dns.lookup": PassedOn("client.dns.lookup", ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    "client.id": PassedOn("client.id", None),
    "client.rack": PassedOn("client.rack", None),
    "connections.max.idle.ms": PassedOn("connections.max.idle.ms", _MILLISECONDS),
    "default.api.timeout.ms": PassedOn(None, _MILLISECONDS),
    "enable.metrics.push": PassedOn("enable.metrics.push", ("true", "false")),
    "fetch.max.bytes": PassedOn(None, _BYTES),
    "fetch.min.bytes": PassedOn(None, _BYTES),
    "max.partition.fetch.bytes": PassedOn(None, _BYTES),
    "metadata.max.age.ms": PassedOn("metadata.max.age.ms", range(1, 86_400_000 + 1)),
    "receive.buffer.bytes": PassedOn("socket.receive.buffer.bytes", range(100_000_000 + 1)),
    "reconnect.backoff.max.ms": PassedOn("reconnect.backoff.max.ms", range(3_600_000 + 1)),
    "reconnect.backoff.ms": PassedOn("reconnect.backoff.ms", range(3_600_000 + 1)),
    "request.timeout.ms": PassedOn("socket.timeout.ms", range(10, 300_000 + 1)),
    "retry.backoff.max.ms": PassedOn("retry.backoff.max.ms", range(1, 300_000 + 1)),
    "retry.backoff.ms": PassedOn("retry.backoff.ms", range(1, 300_000 + 1)),
    "send.buffer.bytes": PassedOn("socket.send.buffer.bytes", range(100_000_000 + 1)),
    "socket.connection.setup.timeout.ms": PassedOn("socket.connection.setup.timeout.ms", range(1000, 300_000 + 1)),
}
# Setting, or the beginning of several -> why it is not passed on, and what to do instead.
_OWNED = {
    "allow.auto.create.topics": "a deleted topic would come back, empty",
    "auto.offset.reset": "write sources[].start",
    "bootstrap.servers": "write brokers",
    "enable.auto.commit": "the checkpoint has the offsets",
    "fetch.max.wait.ms": "a micro-batch would wait for it",
    "group.": "the checkpoint has the offsets, and no group is joined",
    "isolation.level": "write sources[].isolation",
    "key.deserializer": "a dead letter has the bytes of its record",
    "value.deserializer": "a dead letter has the bytes of its record",
    "max.poll.": "the size of a micro-batch follows from sink.max_batch_size",
    "sasl.": "write mechanism and its keys",
    "security.": "write protocol",
    "ssl.": "write root_ca, client_cert and client_key",
}


def kafka_settings(raw: Any) -> dict[str, str]:
    """Return settings with their values as text, whatever YAML type they have; raises ValueError for invalid ones."""
    if not isinstance(raw, dict):
        raise ValueError("write settings as KEY: VALUE")  # noqa: TRY004 - pydantic reports ValueErrors only
    return {str(key): _text(str(key), value) for key, value in raw.items()}


def _text(key: str, value: Any) -> str:
    """Return the value of one setting as text; raises ValueError for a setting that is not passed on."""
    for owned, reason in _OWNED.items():
        if key == owned or (owned.endswith(".") and key.startswith(owned)):
            raise ValueError(f"{key} cannot be set: {reason}; remove it")
    if key not in PASSED_ON:
        raise ValueError(f"{key} is not passed on to Kafka's clients; these are: {', '.join(PASSED_ON)}")
    text, taken = setting_text(value), PASSED_ON[key].values
    if isinstance(taken, range):
        if not re.fullmatch(r"\d{1,10}", text) or int(text) not in taken:
            raise ValueError(f"{key}: {value!r} is not a whole number from {taken[0]} to {taken[-1]}; write one")
    elif not (isinstance(value, str) if taken is None else text in taken):
        raise ValueError(f"{key}: {value!r} is not a value of it; write {' or '.join(taken or ('a text',))}")
    return text


KafkaSettings = Annotated[
    dict[str, str],
    BeforeValidator(kafka_settings),
    WithJsonSchema({
        "type": "object", "propertyNames": {"enum": list(PASSED_ON)},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }),
]  # fmt: skip
