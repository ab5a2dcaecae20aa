"""How Java's clients want credentials written."""


def quoted(text: str) -> str:
    """Quote a value the way Kafka's JAAS parser, Java's StreamTokenizer, reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
