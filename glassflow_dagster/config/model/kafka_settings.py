"""Settings of Kafka's clients that a definition may pass on; all others belong to the guarantees or to other keys."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

# Java's name of a setting -> librdkafka's; None where only Spark's consumer, which reads the stream, has it.
PASSED_ON: dict[str, str | None] = {
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "default.api.timeout.ms": None,
    "enable.metrics.push": "enable.metrics.push",
    "fetch.max.bytes": None,
    "fetch.min.bytes": None,
    "max.partition.fetch.bytes": None,
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
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
    if isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise ValueError(f"{key}: {value!r} is not a value of a setting; write a string, a number, true or false")


KafkaSettings = Annotated[
    dict[str, str],
    BeforeValidator(kafka_settings),
    WithJsonSchema({
        "type": "object", "propertyNames": {"enum": list(PASSED_ON)},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }),
]  # fmt: skip
