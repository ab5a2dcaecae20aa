"""Cursors of sensors: JSON of a model."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

CursorModel = TypeVar("CursorModel", bound=BaseModel)


def parse_cursor(model: type[CursorModel], cursor: str | None) -> CursorModel:
    """Parse a sensor's cursor; return an empty one for None, and for one that another version has written."""
    try:
        return model.model_validate_json(cursor) if cursor else model()
    except ValidationError:
        return model()
