"""Why a request is refused, and the answers that the OTLP specification has for it."""

from enum import Enum
from http import HTTPStatus
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from glassflow_dagster.errors import GlassflowError


class Reason(Enum):
    """A reason: HTTP status, gRPC code, and the seconds after which the client may try again; None: never.

    With gRPC, RESOURCE_EXHAUSTED means that a client may repeat the request only if there is a RetryInfo.
    """

    INVALID = (HTTPStatus.BAD_REQUEST, StatusCode.INVALID_ARGUMENT, None)
    UNAUTHENTICATED = (HTTPStatus.UNAUTHORIZED, StatusCode.UNAUTHENTICATED, None)
    NOT_RECEIVED = (HTTPStatus.NOT_FOUND, StatusCode.UNIMPLEMENTED, None)
    WRONG_METHOD = (HTTPStatus.METHOD_NOT_ALLOWED, StatusCode.UNIMPLEMENTED, None)
    TOO_SLOW = (HTTPStatus.REQUEST_TIMEOUT, StatusCode.DEADLINE_EXCEEDED, None)
    TOO_LARGE = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, StatusCode.RESOURCE_EXHAUSTED, None)
    WRONG_ENCODING = (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, StatusCode.INVALID_ARGUMENT, None)
    # The queue becomes shorter with each answer of the brokers, so soon.
    FULL = (HTTPStatus.TOO_MANY_REQUESTS, StatusCode.RESOURCE_EXHAUSTED, 1)
    # A broker's restart, or the election of a partition's leader, takes some seconds.
    UNAVAILABLE = (HTTPStatus.SERVICE_UNAVAILABLE, StatusCode.UNAVAILABLE, 5)

    def __init__(self, http: HTTPStatus, grpc: StatusCode, retry_after: int | None) -> None:
        self.http = http
        self.grpc = grpc
        self.retry_after = retry_after


class Refusal(GlassflowError):
    """A request that is not accepted; the message is for the client's operator."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def status(self) -> Any:
        """Return the google.rpc.Status of the answer, with a RetryInfo if the client may try again."""
        # The first part of gRPC's value is the number of the code.
        status = Status(code=self.reason.grpc.value[0], message=str(self))
        if self.reason.retry_after is not None:
            status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=self.reason.retry_after)))
        return status
