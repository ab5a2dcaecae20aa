"""Secrets of definitions: kept in files of their own, never sent back, and left where a client does not send them.

An answer has `MASK` in place of a secret. A definition that is sent with `MASK` keeps the stored secret, as long as it
goes to the same server: else whoever may edit a pipeline could have its password sent to a server of their own. For the
same reason `${VAR}` and `${file:PATH}` may not be sent, unless the stored definition has them at the same path.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.plain_secrets import SECRETS
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.variables import holds_variable
from glassflow_dagster.server.api.files import PRIVATE

MASK = "********"
# The parts of a definition that have secrets, and the keys that say where these are sent.
_ADDRESSES = {
    "connection_params": ("brokers", "host", "port", "http_port", "protocol", "secure"),
    "schema_registry": ("url",),
    "state": ("url", "endpoint"),
}
# How deep in a definition these parts are.
_DEPTHS = {"sources": 2, "sink": 1, "state": 0}
# What a key means that is left out; clients spell it out.
_DEFAULTS = {"protocol": "PLAINTEXT", "secure": False}
_OWN_FILE = f"${{file:{PRIVATE}/"
_Step = str | int
_Place = tuple[_Step, ...]


@dataclass
class Protected:
    """A definition as it is to be written, with references to the files of its secrets.

    plain: the definition with the values of new secrets, which have no file yet.
    secrets: file name -> value, of the files to be written.
    problems: what is wrong with the secrets and references that the client has sent.
    """

    definition: dict[str, Any]
    plain: dict[str, Any]
    secrets: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def masked(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a v3 definition without secrets; references that an author wrote stay, as they say nothing."""
    answer = copy.deepcopy(dict(definition))
    for _, owner, key in _secret_places(answer):
        value = owner[key]
        # A number is a mistake that validation reports, but may be the secret.
        is_foreign = isinstance(value, str) and holds_variable(value) and not value.startswith(_OWN_FILE)
        if value and not is_foreign:
            owner[key] = MASK
    return answer


def protect(sent: Mapping[str, Any], stored: Mapping[str, Any] | None, folder: str, prefix: str) -> Protected:
    """Move the secrets of a definition that a client has sent into files; return what is to be written.

    In the definition a reference to a file takes the place of each secret. A secret that the client sends back masked,
    as it got it, stays what it is in the stored definition.
    sent: the v3 definition of the client.
    stored: the v3 definition that it replaces; None for a new pipeline.
    folder: where the secrets' files are, relative to the definition.
    prefix: of the files' names.
    """
    result = Protected(copy.deepcopy(dict(sent)), {})
    keeping = _kept_values(stored)
    for place, owner, key in _secret_places(result.definition):
        known = keeping.get(_named(result.definition, place))
        owner[key] = _kept_or_new(result, place, owner[key], known)
    result.plain = copy.deepcopy(result.definition)
    for place, owner, key in _secret_places(result.definition):
        value = owner[key]
        if isinstance(value, str) and value and not holds_variable(value):
            name = prefix + ".".join(map(str, place))
            result.secrets[name] = value
            owner[key] = f"${{file:{Path(folder) / name}}}"
    _refuse_references(sent, stored or {}, result.problems)
    return result


def _kept_or_new(result: Protected, place: _Place, value: Any, known: "_Known | None") -> Any:
    """Return the stored secret for a mask and for its own reference, any other value unchanged; may add a problem."""
    if isinstance(value, str) and value.endswith("\r"):
        result.problems.append(Problem(path_text(place), "ends with a carriage return; remove it"))
    if not value or (value != MASK and (known is None or value != known.value)):
        return value
    if known is None or not known.value:
        result.problems.append(Problem(path_text(place), "no secret is stored here; send the secret itself"))
        return value
    if known.address != _address(result.definition, place):
        text = "is kept for another server; send the secret again for this one"
        result.problems.append(Problem(path_text(place), text))
    return known.value


@dataclass(frozen=True)
class _Known:
    value: str
    address: tuple[str, ...]


def _kept_values(stored: Mapping[str, Any] | None) -> dict[_Place, _Known]:
    """Return the stored secrets, as they are written, by place."""
    definition = dict(stored or {})
    return {
        _named(definition, place): _Known(str(owner[key]), _address(definition, place))
        for place, owner, key in _secret_places(definition)
    }


def _named(definition: Mapping[str, Any], place: _Place) -> _Place:
    """Return a place with a source's id in place of its index, so that sources may change their order."""
    if place[0] != "sources":
        return place
    return ("sources", str(definition["sources"][place[1]].get("source_id")), *place[2:])


def _address(definition: Mapping[str, Any], place: _Place) -> tuple[str, ...]:
    """Return where the secret at a place is sent; equal texts mean the same server and the same encryption."""
    depth = _DEPTHS[str(place[0])]
    part: Any = definition
    for step in place[: depth + 1]:
        part = part[step]
    token_url = (part.get("oauth") or {}).get("token_url") if "oauth" in place else None
    names = _ADDRESSES[str(place[depth])]
    found = [_DEFAULTS.get(name) if part.get(name) is None else part[name] for name in names]
    # A port may be a number or a text.
    return tuple(str([str(item) for item in each] if isinstance(each, list) else each) for each in (*found, token_url))


def _secret_places(definition: Mapping[str, Any]) -> Iterator[tuple[_Place, dict[str, Any], str]]:
    """Yield the place of each secret of a v3 definition, valid or not, with its object and key."""
    sources = definition.get("sources")
    parts = [(("sources", index), part) for index, part in enumerate(sources if isinstance(sources, list) else ())]
    for place, part in (*parts, (("sink",), definition.get("sink"))):
        for name in _ADDRESSES:
            if isinstance(part, dict):
                yield from _within((*place, name), part.get(name))
    yield from _within(("state",), definition.get("state"))


def _within(place: _Place, value: Any) -> Iterator[tuple[_Place, dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, inner in list(value.items()):
            if key in SECRETS and inner is not None and not isinstance(inner, dict):
                yield (*place, key), value, key
            else:
                yield from _within((*place, key), inner)


def _refuse_references(sent: Any, stored: Any, problems: list[Problem], place: _Place = ()) -> None:
    """Add a problem for each reference in a sent value that the stored one does not have at the same place."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            inner = stored.get(key) if isinstance(stored, dict) else None
            _refuse_references(value, inner, problems, (*place, str(key)))
    elif isinstance(sent, list):
        for index, value in enumerate(sent):
            inner = stored[index] if isinstance(stored, list) and index < len(stored) else None
            _refuse_references(value, inner, problems, (*place, index))
    elif isinstance(sent, str) and holds_variable(sent) and sent != stored:
        problems.append(Problem(path_text(place), "refers to the server's variables or files; send the value itself"))


def path_text(place: _Place) -> str:
    """Return a place as the path of a key: `sources[0].connection_params.password`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{step}"
    return text
