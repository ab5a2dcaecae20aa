"""Find secrets in a definition that are written in plain text."""

from collections.abc import Iterator
from typing import Any

from glassflow_dagster.definition.variables import holds_variable

# Secret keys of connection_params, of its parts, of schema_registry, and of the state.
SECRETS = (
    "client_secret",
    "password",
    "client_key",
    "kerberos_keytab",
    "api_secret",
    "bearer_token",
    "secret_access_key",
    "session_token",
)


def secrets_in(definition: dict[str, Any]) -> tuple[str, ...]:
    """Return a warning for each secret of a v3 definition, valid or not, that is no `${...}` reference."""
    sources = definition.get("sources")
    source_parts = [(f"sources[{i}]", s) for i, s in enumerate(sources if isinstance(sources, list) else ())]
    secret_paths = [
        secret
        for path, part in (*source_parts, ("sink", definition.get("sink")))
        for name in ("connection_params", "schema_registry")
        if isinstance(part, dict)
        for secret in _plain_secrets(f"{path}.{name}", part.get(name))
    ]
    secret_paths += _plain_secrets("state", definition.get("state"))
    return tuple(
        f"{path}: is in plain text in the file; write ${{VAR}} or ${{file:PATH}} instead" for path in secret_paths
    )


def _plain_secrets(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of the secrets in plain text within a value at a path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in SECRETS and isinstance(inner, str) and inner and not holds_variable(inner):
                yield f"{path}.{key}"
            yield from _plain_secrets(f"{path}.{key}", inner)
