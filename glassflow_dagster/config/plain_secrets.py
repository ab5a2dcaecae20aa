"""Find secrets in a definition that are written in plain text."""

from typing import Any

from glassflow_dagster.config.variables import holds_variable

# Secret keys of connection_params and schema_registry.
SECRETS = ("password", "client_key", "kerberos_keytab", "api_secret", "bearer_token")


def secrets_in(definition: dict[str, Any]) -> tuple[str, ...]:
    """Return a warning for each secret of a v3 definition, valid or not, that is no `${...}` reference."""
    sources = definition.get("sources")
    source_parts = [(f"sources[{i}]", s) for i, s in enumerate(sources if isinstance(sources, list) else ())]
    secret_paths = []
    for path, part in (*source_parts, ("sink", definition.get("sink"))):
        for name in ("connection_params", "schema_registry"):
            parameters = part.get(name) if isinstance(part, dict) else None
            for key in SECRETS:
                value = parameters.get(key) if isinstance(parameters, dict) else None
                if isinstance(value, str) and value and not holds_variable(value):
                    secret_paths.append(f"{path}.{name}.{key}")
    return tuple(
        f"{path}: is in plain text in the file; write ${{VAR}} or ${{file:PATH}} instead" for path in secret_paths
    )
