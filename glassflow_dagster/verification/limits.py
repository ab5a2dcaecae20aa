"""How many records of a kind a definition allows: a number of them, or a share of all."""


def limit(allowed: int | str, of: int) -> int:
    """Give how many may be there: the number itself, or the share of `of` records, such as `0.5%`, rounded down."""
    if isinstance(allowed, int):
        return allowed
    return int(of * float(allowed.removesuffix("%")) / 100)
