"""Limits of a definition on records of a kind: a number, or a share of all records."""


def allowed_count(allowed: int | str, total: int) -> int:
    """Return the allowed number of records: `allowed` itself, or its share (`0.5%`) of `total`, rounded down."""
    if isinstance(allowed, int):
        return allowed
    return int(total * float(allowed.removesuffix("%")) / 100)
