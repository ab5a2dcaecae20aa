"""How many dead letters wait, and why: those of the newest checkpoint that were not sent again, nor deleted.

One is enough to warn unless the definition says otherwise: a record that could not go on is missing in the table until
somebody fixes what is wrong and sends it again.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from glassflow_dagster.bookkeeping.dead_letters import DeadLetter
from glassflow_dagster.bookkeeping.ledger import newest_checkpoint
from glassflow_dagster.bookkeeping.totals import read_sums
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.letters import DeadLetterStore
from glassflow_dagster.verification.budget import limits_told, set_limits
from glassflow_dagster.verification.limits import limit

# Waiting letters that a report shows one by one, and the most frequent reasons.
LAST_SHOWN = 10
REASONS_SHOWN = 20

# Reasons differ in the values they name: quoted ones, behind a colon where the reason is our own and not the server's,
# and numbers. What is left is told apart. A value may hold quotes, so all between the first and the last one goes.
_PATTERN = r"""replaceRegexpAll(
    if(stage = 'insert',
       replaceRegexpOne(reason, '(?s)''.*''', '''...'''),
       replaceRegexpOne(reason, '(?s)^((?:[^:]|:[^ ])*: [^'']*)''.*''', '\\1''...''')),
    '\\b[0-9]+\\b', 'N')"""


class Cause(NamedTuple):
    """A kind of dead letters: where they were refused, why (values left out), and how many there are."""

    stage: str
    reason: str
    letters: int


@dataclass(frozen=True)
class DeadLettersReport:
    """What waits, against what may wait; `last` are the newest letters."""

    passed: bool
    description: str
    figures: dict[str, int | float | str] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    last: tuple[DeadLetter, ...] = ()


def examine_dead_letters(config: PipelineConfig) -> DeadLettersReport:
    """Count a pipeline's dead letters.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when they cannot be asked for.
    """
    box = DeadLetterStore.open(config)
    set_limits(box.client, config.checks)
    with limits_told(config.checks):
        return _examine(config, box)


def _examine(config: PipelineConfig, box: DeadLetterStore) -> DeadLettersReport:
    read = read_sums(box.client, box.database, box.pipeline_id).outcomes.read
    newest = newest_checkpoint(box.client, box.database, box.pipeline_id)
    waiting = f"NOT replayed AND checkpoint_id = '{newest}'"
    found = box.ask(
        f"SELECT stage, {_PATTERN} AS pattern, count() FROM ({box.chosen(waiting)}) "
        "GROUP BY stage, pattern ORDER BY count() DESC, stage, pattern",
        waiting,
    )
    causes = tuple(Cause(*row) for row in found)
    count, stored = sum(cause.letters for cause in causes), box.count()
    allowed = limit(config.checks.max_dead_letters, read)
    return DeadLettersReport(
        passed=count <= allowed,
        description=describe(config.checks.max_dead_letters, count, read, causes),
        figures={"waiting": count, "stored": stored, "read": read, "allowed": allowed},
        causes=causes[:REASONS_SHOWN],
        last=tuple(box.read(waiting, newest_first=True, limit=LAST_SHOWN)) if count else (),
    )


def describe(allowed: int | str, count: int, read: int, causes: tuple[Cause, ...]) -> str:
    """Say it in a sentence or two."""
    if not count:
        return "No dead letter waits."
    number = f"{count:,} dead letter{' waits' if count == 1 else 's wait'}, of {read:,} records read"
    first = f"{causes[0].stage}: {causes[0].reason}"
    often = f" ({causes[0].letters:,} times)" if len(causes) > 1 else ""
    over = f"; checks.max_dead_letters allows {allowed}" if count > limit(allowed, read) else ""
    return f"{number}{over}. Most often: {first}{often}. Mend it, then: glassflow-dagster dead-letters replay."
