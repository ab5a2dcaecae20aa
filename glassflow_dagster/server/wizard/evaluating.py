"""Tries a draft on the records of its sample: what the filter drops, what becomes a dead letter, and the rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassflow_dagster.inference.definition import BATCH_TIME, before_join
from glassflow_dagster.inference.draft import Computed
from glassflow_dagster.server.api.evaluation_session import EvaluationSession
from glassflow_dagster.server.api.preview import preview
from glassflow_dagster.server.wizard.checking import load
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.stores.kafka.records import Record


@dataclass(frozen=True)
class Evaluated:
    """What becomes of a record.

    outcome: row, filtered, duplicate or dead_letter.
    values: of a row, by field.
    """

    record: Record
    outcome: str
    reason: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """What becomes of the sample's records. names: of the fields of rows."""

    records: tuple[Evaluated, ...]
    names: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The number of records by outcome."""
        counts = Counter(each.outcome.replace("_", " ") for each in self.records)
        return ", ".join(
            f"{count} {name}{'s' if count != 1 and name != 'filtered' else ''}" for name, count in counts.items()
        )


def evaluate(draft: Draft, condition: str, computed: Sequence[Computed], session: EvaluationSession) -> Evaluation:
    """Return what a filter and computed fields make of the sample; the join comes later.

    Raises `AnswerRefused` for an invalid one, and `GlassflowError` where Spark does not start.
    """
    known = draft.source
    side = replace(known, filter=condition)
    config = load(before_join(Draft(kafka=draft.kafka, left=side, computed=tuple(computed))))
    # A few seconds for the first one: it starts Spark.
    with session.use() as spark:
        outcomes = preview(spark, config, config.source, known.sample.records)
    mapped = {each.column_name: each.name for each in config.sink.mapping if each.name != BATCH_TIME}
    records = tuple(
        Evaluated(
            record, outcome["outcome"], str(outcome.get("reason", "")), _values(outcome, mapped)
        )
        for record, outcome in zip(known.sample.records, outcomes, strict=True)
    )  # fmt: skip
    return Evaluation(records, tuple(mapped.values()))


def _values(outcome: dict[str, Any], mapped: dict[str, str]) -> dict[str, Any]:
    rows = outcome.get("rows") or [{"columns": {}}]
    return {mapped[column]: value for column, value in rows[0]["columns"].items() if column in mapped}
