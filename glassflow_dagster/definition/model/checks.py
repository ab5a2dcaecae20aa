"""Settings of Dagster's checks and of dead letters: extensions of this project."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from glassflow_dagster.definition.model.fields import Limit, Part, PositiveDuration, Text


class Checks(Part):
    """Settings of Dagster's checks of the pipeline."""

    every: str = Field(
        default="*/15 * * * *",
        pattern=r"^\S+(\s+\S+){4}$",
        description="cron schedule (five fields) of the health check and the asset checks",
    )
    arrival_column: Text | None = Field(default=None, description="the column with the time at which a row arrived")
    other_writers: bool = Field(default=False, description="true: others write to the table too, so it holds more rows")
    max_dead_letters: Limit = Field(
        default=0, description="tolerated dead letters: a number, or a share of the records read, such as '0.5%'"
    )
    max_unmatched: Limit | None = Field(
        default=None,
        description="left events of a join that may remain without a match per day: a number, or a share of the "
        "decided ones, such as '5%'; if omitted: any number",
    )
    # Dagster's freshness policies cannot be shorter than a minute.
    max_age: Annotated[PositiveDuration, Field(ge=timedelta(minutes=1))] | None = Field(
        default=None,
        description="how long the table may be without new rows: Dagster's freshness warns at half of it, and fails "
        "then; if omitted: any time",
    )
    show_values: bool | None = Field(
        default=None,
        description="true: Dagster's checks show keys and the beginnings of dead letters, and Dagster keeps them "
        "beyond any retention; if omitted: only with the embedded stack of `make dev`",
    )
    # Less is not enough to query even a few rows of the bookkeeping tables.
    max_memory_mib: Annotated[int, Field(ge=64)] = Field(
        default=2048,
        description="MiB of ClickHouse's memory that one query of a check or of `verify` may take; for a larger "
        "table, duplicates are searched in a share of the keys, and the report says so",
    )
    max_query_time: PositiveDuration = Field(
        default=timedelta(minutes=5), description="how long one query of a check or of `verify` may take"
    )


class DeadLetters(Part):
    """Retention of dead letters, and how often one of them may be replayed."""

    retention: PositiveDuration | None = Field(
        default=None, description="how long dead letters are kept; if omitted: forever"
    )
    max_attempts: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=5, description="how often a record that keeps failing is replayed"
    )
