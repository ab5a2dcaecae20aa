"""Secrets that stand in a definition as they are."""

from typing import Any

from glassflow_dagster.config.variables import holds_variable

# What connection_params and schema_registry may hold that nobody else should read.
SECRETS = ("password", "client_key", "kerberos_keytab", "api_secret")


def secrets_in(definition: dict[str, Any]) -> tuple[str, ...]:
    """Name the secrets in a v3 definition, whatever else it holds, that are no references."""
    sources = definition.get("sources")
    places = [(f"sources[{i}]", s) for i, s in enumerate(sources if isinstance(sources, list) else ())]
    found = []
    for path, part in (*places, ("sink", definition.get("sink"))):
        for name in ("connection_params", "schema_registry"):
            parameters = part.get(name) if isinstance(part, dict) else None
            for key in SECRETS:
                value = parameters.get(key) if isinstance(parameters, dict) else None
                if isinstance(value, str) and value and not holds_variable(value):
                    found.append(f"{path}.{name}.{key}")
    return tuple(f"{place}: stands in the file as it is; write ${{VAR}} or ${{file:PATH}} instead" for place in found)
