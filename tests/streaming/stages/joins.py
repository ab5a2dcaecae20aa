"""A temporal join in plain Python, to compare the stream with: every left event with every right one of its key."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Row = tuple[str, str | None]


@dataclass(frozen=True)
class Happened:
    """An event: its name, its key (None matches nothing), and its time in microseconds.

    `place` is the order of events of one time.
    """

    name: str
    key: Hashable
    time: int
    place: tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """How long before and after a left event a right one belongs to it; microseconds."""

    left: int
    right: int

    def before(self, left: Happened, rights: Sequence[Happened]) -> list[Happened]:
        """Give the right events at or before the left one that belong to it, the latest last."""
        found = [r for r in rights if _same(left, r) and 0 <= left.time - r.time < self.right]
        return sorted(found, key=lambda r: (r.time, r.place))

    def after(self, left: Happened, rights: Sequence[Happened]) -> list[Happened]:
        """Give the right events behind the left one that belong to it, the first one first."""
        found = [r for r in rights if _same(left, r) and 0 < r.time - left.time < self.left]
        return sorted(found, key=lambda r: (r.time, r.place))


def joined(lefts: Sequence[Happened], rights: Sequence[Happened], windows: Windows, match: str) -> set[Row]:
    """Give the rows of all left events that have a match: (left name, right name)."""
    rows: set[Row] = set()
    of_key: dict[Hashable, list[Happened]] = defaultdict(list)
    for right in rights:
        of_key[right.key].append(right)
    for left in lefts:
        before, after = windows.before(left, of_key[left.key]), windows.after(left, of_key[left.key])
        if match == "all":
            rows |= {(left.name, right.name) for right in before + after}
        elif before or after:
            rows.add((left.name, (before[-1:] or after[:1])[0].name))
    return rows


@dataclass(frozen=True)
class Fates:
    """What becomes of both sides: rows of two, rows of a left event alone, and the ledger's counts of the join."""

    pairs: set[Row]
    alone: set[Row]
    counts: dict[str, int]


def decide(lefts: Sequence[Happened], rights: Sequence[Happened], windows: Windows, match: str, complete: int) -> Fates:
    """Say what becomes of all events once the join's clock has come to `complete`, microseconds."""
    pairs = joined(lefts, rights, windows, match)
    matched = {name for name, _ in pairs}
    decided = {left.name for left in lefts if left.key is None or left.time + windows.left <= complete}
    alone: set[Row] = {(name, None) for name in decided - matched}
    counts = {
        "taken": len(lefts) + len(rights), "accepted": len(rights), "matched": len(matched), "unmatched": len(alone),
        "waiting": len(lefts) - len(matched) - len(alone),
        "null_keys": sum(event.key is None for event in (*lefts, *rights)),
    }  # fmt: skip
    return Fates(pairs, alone, counts)


def _same(left: Happened, right: Happened) -> bool:
    return left.key is not None and left.key == right.key
