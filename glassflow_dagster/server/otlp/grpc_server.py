"""OTLP over gRPC: the three collector services."""

from collections.abc import Awaitable, Callable

import grpc

from glassflow_dagster.server.otlp.admission import Admission
from glassflow_dagster.server.otlp.budget import OVERHEAD
from glassflow_dagster.server.otlp.encoding import Encoding
from glassflow_dagster.server.otlp.receiver import Receiver
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.refusals import Refusal
from glassflow_dagster.server.otlp.signals import SIGNALS, Signal

# Where gRPC has the google.rpc.Status of an error.
_DETAILS = "grpc-status-details-bin"
# Calls of one connection at a time; more of them wait in the client, so that they take no memory here.
_CALLS_PER_CONNECTION = 128

Export = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class GrpcServices:
    """The gRPC services."""

    def __init__(self, receiver: Receiver, admission: Admission, metrics: ReceiverMetrics) -> None:
        self._receiver = receiver
        self._admission = admission
        self._metrics = metrics

    def server(self) -> grpc.aio.Server:
        """Return a server with the services, which listens nowhere yet."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._admission.largest),
                ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
                # A second receiver on the same port is an error, instead of half of the requests.
                ("grpc.so_reuseport", 0),
            ]
        )
        server.add_generic_rpc_handlers([self._service(signal) for signal in SIGNALS])
        return server

    def _service(self, signal: Signal) -> grpc.GenericRpcHandler:
        # Without a deserializer: a message that cannot be parsed is the client's error, and others go to Kafka as
        # they are.
        handler = grpc.unary_unary_rpc_method_handler(self._endpoint(signal))
        return grpc.method_handlers_generic_handler(signal.service, {"Export": handler})

    def _endpoint(self, signal: Signal) -> Export:
        async def export(body: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            try:
                answer = await self._export(signal, body, context)
            except Refusal as refusal:
                self._metrics.answered(signal.name, "grpc", refusal.reason.grpc.name)
                details = ((_DETAILS, refusal.status().SerializeToString()),)
                await context.abort(refusal.reason.grpc, str(refusal), details)
            self._metrics.answered(signal.name, "grpc", grpc.StatusCode.OK.name)
            return answer

        return export

    async def _export(self, signal: Signal, body: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        self._admission.token.require(dict(context.invocation_metadata() or ()).get("authorization"))
        with self._admission.bodies.hold() as held:
            held.grow(len(body) + OVERHEAD)
            response = await self._receiver.export(signal, Encoding.PROTOBUF, body)
        return Encoding.PROTOBUF.encode(response)
