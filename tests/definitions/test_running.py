"""Definitions of every format run to the rows, counts and dead letters that the format's rules define.

Every second definition runs as `convert` prints it, so the results also hold for converted files. `make test` runs
some of the folder, `make test-definitions` all of it.
"""

from itertools import chain, repeat
from pathlib import Path

import pytest

from glassflow_dagster.definition.load import convert_definition, load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.definitions import running
from tests.definitions.cases import CASES, Case, Expected, draw_cases
from tests.servers.stack import Stack
from tests.support.variants import some_of

# Two of each version and a join.
USUAL = draw_cases(of_each=2, joins=1)
RUN = some_of([*USUAL, *(case for case in CASES if case not in USUAL)], len(USUAL))
# Alternate by position in the sorted names, independently of the draw.
CONVERTED = sorted(case.name for case in CASES)[1::2]


def loaded(case: Case, stack: Stack, folder: Path) -> PipelineConfig:
    """Load a case's definition, converted or as written, with names and addresses of the stack."""
    environment = {**stack.environment, **case.environment}
    file = case.file
    if case.name in CONVERTED:
        file = folder / f"{case.name}.yaml"
        file.write_text(convert_definition(case.file, environment).yaml, encoding="utf-8")
    config = load_pipeline(file, environment)
    # The embedded server does not support ON CLUSTER.
    return config.model_copy(update={"sink": config.sink.model_copy(update={"cluster": None})})


def full(expected: Expected, config: PipelineConfig, found: running.Outcome) -> running.Outcome:
    """Return the outcome that a run must have, by what its case says of it.

    A case gives the beginnings of the reasons of dead letters; those that are found so count in full.
    """
    dead_letters = sorted(
        (running.topic_of(config, each.source), each.partition, each.offset, each.stage, each.reason)
        for each in expected.dead_letters
    )
    reasons = chain((reason for *_, reason in found.dead_letters), repeat(""))
    return running.Outcome(
        rows=sorted(expected.rows, key=running.as_text),
        totals={name: count for name, count in expected.totals.items() if count},
        dead_letters=[
            (*position, reason if reason.startswith(beginning) else beginning)
            for (*position, beginning), reason in zip(dead_letters, reasons, strict=False)
        ],
    )


@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("case", RUN, ids=lambda case: f"{case.version}-{case.name}")
def test_a_definition_gives_the_rows_that_its_format_says(case: Case, stack: Stack, tmp_path: Path) -> None:
    config = loaded(case, stack, tmp_path)
    running.prepare(case, config)
    for number, expected in enumerate(case.runs):
        running.send(config, expected.messages)
        if number == 0:
            running.commit(case, config)
        columns = [column for row in expected.rows[:1] for column in row]
        found = running.run(config, columns, tmp_path / "state")
        assert found == full(expected, config, found)
