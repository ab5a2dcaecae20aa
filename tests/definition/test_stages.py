"""Filters and stateless transforms of a definition: order, visible names, and errors."""

from typing import Any

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.rules.pipeline import problems
from glassflow_dagster.definition.stages import FilterStage, Stages, plan_stages
from tests.support import definition as definitions
from tests.support.definition import definition, fields, sink, source

SCANS = source("scans", fields(**{"id": "string", "kg": "float", "hub.code": "string", "seen": "int"}))


def keep(expression: str) -> dict[str, Any]:
    """Return a filter that keeps events for which the expression is true."""
    return definitions.filter_transform("scans", expression)


def make(*outputs: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Return a stateless transform with outputs (name, expression[, type])."""
    return definitions.stateless_transform("scans", *outputs)


def config(*transforms: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(definition("scans", SCANS, sink({"id": "String"}), *transforms))


def planned(*transforms: dict[str, Any]) -> Stages:
    return plan_stages(config(*transforms))


def errors(*transforms: dict[str, Any]) -> list[str]:
    """Return the errors of a definition with these transforms: path and text."""
    return [f"{problem.path}: {problem.text}" for problem in problems(config(*transforms))]


def texts(stages: Stages) -> list[str]:
    """Return each stage as the text of its condition or the names of its outputs."""
    return [
        step.condition.text if isinstance(step, FilterStage) else ",".join(o.name for o in step.outputs)
        for step in stages.steps
    ]


def test_stages_run_in_the_order_of_the_list() -> None:
    found = planned(
        keep("kg > 1"), make(("id", "id"), ("n", "seen * 2", "int")), keep("n > 3"), make(("id", "id + '!'"))
    )
    assert texts(found) == ["kg > 1", "id,n", "n > 3", "id"]
    assert found.problems == ()
    assert found.warnings == ()


def test_the_mapping_sees_the_last_outputs_only_and_kafkas_own_fields() -> None:
    found = planned(make(("id", "upper(id)"), ("n", "seen", "int"), ("tags", 'split(id, ",")', "[]string")))
    own = {name: kind for name, kind in found.mappable.items() if not name.startswith("_")}
    assert own == {"id": "string", "n": "int", "tags": "array"}
    assert {"_offset", "_batch_time"} <= found.mappable.keys()
    assert errors(make(("name", "id"))) == [
        "sink.mapping[0].name: 'id' is not among the outputs of the last stateless transform; list it there"
    ]


def test_an_expression_sees_fields_that_no_output_hides() -> None:
    assert planned(make(("id", "id")), make(("id", "hub.code"))).problems == ()
    hidden = errors(make(("id", "id"), ("hub", "id")), make(("id", "hub.code")))
    assert len(hidden) == 1
    assert hidden[0].startswith("transforms[1].config.transforms[0].expression: ")


def test_a_single_filter_behind_a_single_transform_runs_before_it_as_in_glassflow() -> None:
    found = planned(make(("id", "id"), ("kg", "kg * 1000", "float")), keep("kg > 1"))
    assert texts(found) == ["kg > 1", "id,kg"]
    assert [warning.split(":")[0] for warning in found.warnings] == ["transforms[1]"]
    by_output = planned(make(("id", "id"), ("grams", "kg * 1000", "float")), keep("grams > 1"))
    assert texts(by_output) == ["id,grams", "grams > 1"]
    assert by_output.warnings == ()


def test_an_empty_transform_changes_nothing() -> None:
    assert planned(make()).steps == ()
    assert errors(make()) == []


def test_a_misspelt_output_type_is_a_warning() -> None:
    (warning,) = planned(make(("id", "id", "strnig"))).warnings
    assert (
        warning == "transforms[0].config.transforms[0].output_type: 'strnig' converts nothing; did you mean 'string'?"
    )


@pytest.mark.parametrize(
    ("transforms", "line"),
    [
        ([keep("kgs > 1")], "expression: unknown field 'kgs'; did you mean 'kg'? (at ^ in: ^kgs > 1)"),
        ([keep("kg >>>> 1")], "expression: "),
        ([keep("kg + 1")], "expression: a filter needs true or false, but this is a float (at"),
        ([make(("id", "id"), ("id", "hub.code"))], "transforms[1].output_name: 'id' is defined twice"),
        ([make(("id", "toIntt(seen)"))], "transforms[0].expression: unknown function 'toIntt'"),
    ],
)
def test_a_mistake_is_told_at_its_place_and_only_once(transforms: list[dict[str, Any]], line: str) -> None:
    (found,) = errors(*transforms)
    assert found.startswith(f"transforms[0].config.{line}")
