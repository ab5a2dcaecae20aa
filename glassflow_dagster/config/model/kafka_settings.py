"""Settings of Kafka's clients that a definition may pass on; all others belong to the guarantees or to other keys."""

import re
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

_MILLISECONDS = (0, 86_400_000)
_BYTES = (0, 2**31 - 1)


class PassedOn(NamedTuple):
    """A setting that is passed on.

    librdkafka: its name there; None where only Spark's consumer, which reads the stream, has it. values: the texts that
    it takes, or the least and the greatest number that both clients take; None for any text.
    """

    librdkafka: str | None
    values: tuple[int, int] | tuple[str, ...] | None


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
    "metadata.max.age.ms": PassedOn("metadata.max.age.ms", (1, 86_400_000)),
    "receive.buffer.bytes": PassedOn("socket.receive.buffer.bytes", (0, 100_000_000)),
    "reconnect.backoff.max.ms": PassedOn("reconnect.backoff.max.ms", (0, 3_600_000)),
    "reconnect.backoff.ms": PassedOn("reconnect.backoff.ms", (0, 3_600_000)),
    "request.timeout.ms": PassedOn("socket.timeout.ms", (10, 300_000)),
    "retry.backoff.max.ms": PassedOn("retry.backoff.max.ms", (1, 300_000)),
    "retry.backoff.ms": PassedOn("retry.backoff.ms", (1, 300_000)),
    "send.buffer.bytes": PassedOn("socket.send.buffer.bytes", (0, 100_000_000)),
    "socket.connection.setup.timeout.ms": PassedOn("socket.connection.setup.timeout.ms", (1000, 300_000)),
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
    text = str(value).lower() if isinstance(value, bool) else str(value)
    taken = PASSED_ON[key].values
    if taken is None and isinstance(value, str):
        return text
    if taken and isinstance(taken[0], int):
        least, greatest = taken
        if re.fullmatch(r"\d{1,10}", text) and least <= int(text) <= greatest:
            return text
        raise ValueError(f"{key}: {value!r} is not a whole number from {least} to {greatest}; write one")
    if taken and text in taken:
        return text
    raise ValueError(f"{key}: {value!r} is not a value of it; write {' or '.join(map(str, taken or ('a text',)))}")


KafkaSettings = Annotated[
    dict[str, str],
    BeforeValidator(kafka_settings),
    WithJsonSchema({
        "type": "object", "propertyNames": {"enum": list(PASSED_ON)},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }),
]  # fmt: skip
