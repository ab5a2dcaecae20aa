"""Quoting for JAAS configurations, in which Java clients take credentials."""


def quoted(text: str) -> str:
    """Quote a value for Kafka's JAAS parser (Java's StreamTokenizer)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
