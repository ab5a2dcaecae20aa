"""A plain Python reference of the temporal join: compares every left event with every right event of its key."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Row = tuple[str, str | None]


@dataclass(frozen=True)
class JoinEvent:
    """An event: name, join key (None matches nothing), and time in microseconds.

    `place` orders events with equal times.
    """

    name: str
    key: Hashable
    time: int
    place: tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """The join windows in microseconds: a right event matches less than `left` after, or `right` before, a left one."""

    left: int
    right: int

    def before(self, left: JoinEvent, rights: Sequence[JoinEvent]) -> list[JoinEvent]:
        """Return the matching right events at or before the left event, the latest last."""
        found = [r for r in rights if _same(left, r) and 0 <= left.time - r.time < self.right]
        return sorted(found, key=lambda r: (r.time, r.place))

    def after(self, left: JoinEvent, rights: Sequence[JoinEvent]) -> list[JoinEvent]:
        """Return the matching right events after the left event, the earliest first."""
        found = [r for r in rights if _same(left, r) and 0 < r.time - left.time < self.left]
        return sorted(found, key=lambda r: (r.time, r.place))


def joined(lefts: Sequence[JoinEvent], rights: Sequence[JoinEvent], windows: Windows, match: str) -> set[Row]:
    """Return the rows of all left events that have a match: (left name, right name)."""
    rows: set[Row] = set()
    of_key: dict[Hashable, list[JoinEvent]] = defaultdict(list)
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
class JoinOutcome:
    """The outcome of a join: matched rows, rows of unmatched left events, and the ledger's counts."""

    pairs: set[Row]
    alone: set[Row]
    counts: dict[str, int]


def decide(
    lefts: Sequence[JoinEvent], rights: Sequence[JoinEvent], windows: Windows, match: str, complete: int
) -> JoinOutcome:
    """Return the outcome of all events once the join's clock has reached `complete`, in microseconds."""
    pairs = joined(lefts, rights, windows, match)
    matched = {name for name, _ in pairs}
    decided = {left.name for left in lefts if left.key is None or left.time + windows.left <= complete}
    alone: set[Row] = {(name, None) for name in decided - matched}
    counts = {
        "taken": len(lefts) + len(rights), "accepted": len(rights), "matched": len(matched), "unmatched": len(alone),
        "waiting": len(lefts) - len(matched) - len(alone),
        "null_keys": sum(event.key is None for event in (*lefts, *rights)),
    }  # fmt: skip
    return JoinOutcome(pairs, alone, counts)


def _same(left: JoinEvent, right: JoinEvent) -> bool:
    return left.key is not None and left.key == right.key
