"""Accepts an export request: decodes it, writes it to its topic, and answers when Kafka has acknowledged it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from glassflow_dagster.server.otlp.encoding import Encoding, decode
from glassflow_dagster.server.otlp.kafka_writer import KafkaWriter
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from glassflow_dagster.server.otlp.signals import Signal
from glassflow_dagster.server.otlp.splitting import Messages, count_records, split

# Bytes above which a body is converted in another thread, so that other requests go on meanwhile.
_LARGE = 256 * 1024


class Receiver:
    """The part of the receiver that HTTP and gRPC share.

    topics: the topic of each signal that is received, by the signal's name.
    written: the encoding of the messages.
    """

    def __init__(
        self, topics: Mapping[str, str], written: Encoding, writer: KafkaWriter, metrics: ReceiverMetrics
    ) -> None:
        self._topics = topics
        self._written = written
        self._writer = writer
        self._metrics = metrics

    def topic(self, signal: Signal) -> str:
        """Return the topic of a signal; raises `Refusal` for a signal that is not received."""
        if signal.name not in self._topics:
            raise Refusal(
                Reason.NOT_RECEIVED,
                f"this receiver has no topic for {signal.name}; start it with --{signal.name}-topic",
            )
        return self._topics[signal.name]

    async def export(self, signal: Signal, encoding: Encoding, body: bytes) -> Any:
        """Write a request to its topic and return the response after Kafka's acknowledgement; raises `Refusal`."""
        topic = self.topic(signal)
        # JSON is decoded by Python code, large Protobuf messages may have to be split.
        if encoding is Encoding.JSON or self._written is Encoding.JSON or len(body) > _LARGE:
            records, messages = await asyncio.to_thread(self._messages, signal, encoding, body)
        else:
            records, messages = self._messages(signal, encoding, body)
        # A client that ends the call does not cancel what is being written.
        await asyncio.shield(self._writer.write(topic, messages.values))
        self._metrics.received(signal.name, records - messages.rejected, messages.rejected)
        return self._response(signal, messages.rejected)

    def _messages(self, signal: Signal, encoding: Encoding, body: bytes) -> tuple[int, Messages]:
        """Return the number of records of a body, and the messages to write; none for a request without records."""
        request = decode(signal, encoding, body)
        records = count_records(request, signal.path)
        if not records:
            return 0, Messages(())
        limit = self._writer.largest_message
        if encoding is self._written and len(body) <= limit:
            return records, Messages((body,))
        return records, split(request, signal.path, self._written.encode, limit)

    def _response(self, signal: Signal, rejected: int) -> Any:
        response = signal.response()
        if rejected:
            setattr(response.partial_success, signal.rejected, rejected)
            response.partial_success.error_message = (
                f"{rejected} larger than a message may be ({self._writer.largest_message:,} bytes); raise "
                "max.message.bytes of the topic and start the receiver again"
            )
        return response
