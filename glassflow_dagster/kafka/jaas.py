"""JAAS configurations, in which Java's Kafka clients take credentials."""

from collections.abc import Mapping


def login_module(name: str, options: Mapping[str, str]) -> str:
    """Return the configuration of one login module. name: its class."""
    return " ".join([name, "required", *(f"{key}={_quoted(value)}" for key, value in options.items())]) + ";"


def _quoted(text: str) -> str:
    """Quote a value for Kafka's JAAS parser (Java's StreamTokenizer)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
