"""The errors of the API, in the form that GlassFlow's clients read: status, code, message, errors, details."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.errors import GlassflowError

INVALID_DEFINITION = "failed to convert request to pipeline model"


@dataclass
class ApiError(Exception):
    """A request that is not answered with success.

    code: GlassFlow's word for the reason.
    details: facts for programs.
    problems: mistakes in the body, each with the path of its key.
    """

    status: int
    code: str
    message: str
    details: Mapping[str, Any] | None = None
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return self.message

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body, as GlassFlow's `ErrorDetail`."""
        errors = [{"field": each.path, "code": self.code, "message": each.text} for each in self.problems]
        return {
            "status": int(self.status), "code": self.code, "message": self.message,
            **({"errors": errors} if errors else {}), **({"details": dict(self.details)} if self.details else {}),
        }  # fmt: skip


def bad_request(message: str, code: str = "bad_request", **details: Any) -> ApiError:
    """Return the error for a request that cannot be meant so."""
    return ApiError(HTTPStatus.BAD_REQUEST, code, message, details)


def not_found(message: str, **details: Any) -> ApiError:
    """Return the error for something that is not there."""
    return ApiError(HTTPStatus.NOT_FOUND, "not_found", message, details)


def conflict(message: str, code: str = "conflict", **details: Any) -> ApiError:
    """Return the error for a request that contradicts what is there."""
    return ApiError(HTTPStatus.CONFLICT, code, message, details)


def unprocessable(message: str, error: str = "", problems: Iterable[Problem] = (), **details: Any) -> ApiError:
    """Return the error for a body with mistakes. error: all of them as one text, which GlassFlow's SDK shows."""
    found = tuple(problems)
    text = error or "\n".join(f"{each.path}: {each.text}" if each.path else each.text for each in found)
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY, "unprocessable_entity", message, {**details, "error": text}, problems=found
    )


def unavailable(error: GlassflowError) -> ApiError:
    """Return the error for a server that a pipeline uses, and that cannot be asked now."""
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "service_unavailable", str(error))


def invalid_definition(error: GlassflowError, message: str = INVALID_DEFINITION) -> ApiError:
    """Return the error for an invalid definition, with every mistake in it."""
    if isinstance(error, DefinitionError):
        return unprocessable(message, problems=error.problems)
    return unprocessable(message, str(error))
