"""Reads the forms that browsers send."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from glassflow_dagster.server.api.api_error import bad_request

_MOST_FIELDS = 5000


async def _form(request: Request) -> dict[str, str]:
    """Return name -> value; several values of a name are separated by line ends. Raises `ApiError`."""
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        # Half a surrogate pair cannot be written to a file.
        "".join(value for pair in pairs for value in pair).encode()
    except ValueError:
        raise bad_request("the form cannot be read; reload the page and send it again") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        text = value.replace("\r\n", "\n")
        found[name] = f"{found[name]}\n{text}" if name in found else text
    return found


Form = Annotated[dict[str, str], Depends(_form)]
