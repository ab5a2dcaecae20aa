"""The check `dead_letters`: waiting dead letters, which are those of the newest checkpoint neither replayed nor purged.

By default a single one makes the check warn: its record is missing in the table until somebody fixes the cause and
replays it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from glassflow_dagster.checks.budget import explaining_limits, set_limits
from glassflow_dagster.checks.limits import allowed_count
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DeadLetter
from glassflow_dagster.stores.bookkeeping.totals import read_sums
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore

# Numbers of waiting dead letters and of most frequent reasons that a report shows.
LAST_SHOWN = 10
REASONS_SHOWN = 20

# SQL that removes the values from a reason, so that reasons of the same kind become equal: quoted values, after a colon
# if the reason is this project's own and not the server's, and numbers. A value may contain quotes, so everything
# between the first and the last quote is removed.
_REASON_WITHOUT_VALUES = r"""replaceRegexpAll(
    if(stage = 'insert',
       replaceRegexpOne(reason, '(?s)''.*''', '''...'''),
       replaceRegexpOne(reason, '(?s)^((?:[^:]|:[^ ])*: [^'']*)''.*''', '\\1''...''')),
    '\\b[0-9]+\\b', 'N')"""


class Cause(NamedTuple):
    """A kind of dead letters: the stage where they failed, the reason without values, and their number."""

    stage: str
    reason: str
    dead_letters: int


@dataclass(frozen=True)
class DeadLettersReport:
    """The result of the check; `causes` with the most frequent first, `last`: the newest waiting dead letters."""

    passed: bool
    description: str
    figures: dict[str, int | float | str] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    last: tuple[DeadLetter, ...] = ()


def examine_dead_letters(config: PipelineConfig) -> DeadLettersReport:
    """Count a pipeline's waiting dead letters, and compare with `checks.max_dead_letters`.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when ClickHouse cannot be queried.
    """
    store = DeadLetterStore.open(config)
    set_limits(store.client, config.checks)
    with explaining_limits(config.checks):
        return _examine(config, store)


def _examine(config: PipelineConfig, store: DeadLetterStore) -> DeadLettersReport:
    """Count the waiting dead letters by kind, and return the report."""
    read = read_sums(store.client, store.database, store.pipeline_id).outcomes.read
    is_waiting = store.waiting()
    rows = store.fetch(
        f"SELECT stage, {_REASON_WITHOUT_VALUES} AS pattern, count() FROM ({store.query_for(is_waiting)}) "
        "GROUP BY stage, pattern ORDER BY count() DESC, stage, pattern",
        is_waiting,
    )
    causes = tuple(Cause(*row) for row in rows)
    count, stored = sum(cause.dead_letters for cause in causes), store.count()
    allowed = allowed_count(config.checks.max_dead_letters, read)
    return DeadLettersReport(
        passed=count <= allowed,
        description=describe(config.checks.max_dead_letters, count, read, causes),
        figures={"waiting": count, "stored": stored, "read": read, "allowed": allowed},
        causes=causes[:REASONS_SHOWN],
        last=tuple(store.read(is_waiting, newest_first=True, limit=LAST_SHOWN)) if count else (),
    )


def describe(allowed: int | str, count: int, read: int, causes: tuple[Cause, ...]) -> str:
    """Return a description of one or more sentences, with the most frequent cause.

    allowed: number or share of records.
    count: waiting dead letters.
    read: records read.
    causes: the most frequent first.
    """
    if not count:
        return "No dead letters are waiting."
    number = f"{count:,} dead letter{' waits' if count == 1 else 's wait'}, of {read:,} records read"
    first = f"{causes[0].stage}: {causes[0].reason}"
    often = f" ({causes[0].dead_letters:,} times)" if len(causes) > 1 else ""
    over = f"; checks.max_dead_letters allows {allowed}" if count > allowed_count(allowed, read) else ""
    return f"{number}{over}. Most often: {first}{often}. Fix the cause, then: glassflow-dagster dead-letters replay."
