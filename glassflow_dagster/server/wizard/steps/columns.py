"""The mapping of fields to columns."""

from dataclasses import dataclass

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.inference.definition import available_fields, proposed_mapping, proposed_order
from glassflow_dagster.inference.draft import MappedColumn, ServerColumn, Target
from glassflow_dagster.server.wizard.checking import problems_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import YES, AnswerRefused, Answers, Question, given
from glassflow_dagster.server.wizard.steps.step import Step


@dataclass(frozen=True)
class Row:
    """A field, its column, and what people should know of it. kind: of the field."""

    mapped: MappedColumn
    kind: str
    examples: tuple[str, ...]
    remark: str


def _ask(draft: Draft) -> list[Question]:
    if draft.target and draft.target.columns is not None:
        return []
    return [
        Question(
            "order_by", "Order of the table", value=draft.order_by or proposed_order(draft),
            help="ORDER BY: what queries select by; it cannot be changed later",
        )
    ]  # fmt: skip


def rows(draft: Draft) -> list[Row]:
    """Return the fields with their columns as answered, or as proposed; the answers are use.N, column.N, type.N."""
    known = {field.name: field for field in available_fields(draft)}
    found = []
    for mapped in draft.mapping or proposed_mapping(draft):
        field = known.get(mapped.field)
        if field is None:
            found.append(Row(mapped, "time", (), "when the batch was read, on Spark's clock"))
        else:
            found.append(Row(mapped, field.kind, field.examples, field.remark))
    return found


def unfilled(target: Target | None, mapping: tuple[MappedColumn, ...]) -> list[str]:
    """Return the columns of an existing table that no field fills, and that have no default of their own."""
    filled = {each.column for each in mapping if each.used}
    return [each.name for each in _columns_of(target) if each.name not in filled and not each.has_default]


def _columns_of(target: Target | None) -> tuple[ServerColumn, ...]:
    """Return the columns of an existing table; none for a new one."""
    return (target.columns or ()) if target else ()


def mapping_of(draft: Draft, answers: Answers) -> tuple[MappedColumn, ...]:
    """Return the answered mapping. The types of an existing table's columns are the table's."""
    types = {each.name: each.type for each in _columns_of(draft.target)}
    found = []
    for index, row in enumerate(rows(draft)):
        column = given(answers, f"column.{index}")
        used = answers.get(f"use.{index}") == YES
        kind = types.get(column) or given(answers, f"type.{index}") or row.mapped.type
        found.append(MappedColumn(row.mapped.field, column, kind, used))
    return tuple(found)


def problems(draft: Draft, mapping: tuple[MappedColumn, ...], order_by: str) -> list[Problem]:
    """Return the mistakes in a mapping; the path of one is column.N, type.N, order_by, or that of the definition."""
    before = draft.mapping, draft.order_by
    draft.mapping, draft.order_by = mapping, order_by
    try:
        found = [_named(each, mapping) for each in problems_of(draft)]
    finally:
        draft.mapping, draft.order_by = before
    columns = {each.name for each in _columns_of(draft.target)}
    if columns:
        found += [
            Problem(
                f"column.{index}",
                f"the table has no column {each.column!r} to fill; choose one that it has, or leave it out",
            )
            for index, each in enumerate(mapping)
            if each.used and each.column not in columns
        ]
    return found


def _answer(draft: Draft, answers: Answers) -> str:
    mapping, order_by = mapping_of(draft, answers), given(answers, "order_by")
    if not any(each.used for each in mapping):
        raise AnswerRefused([Problem("", "no field is written; tick one at least")])
    found = problems(draft, mapping, order_by)
    if found:
        raise AnswerRefused(found)
    draft.mapping, draft.order_by = mapping, order_by
    draft.answered("columns")
    left = unfilled(draft.target, mapping)
    rest = f" With their type's default: {', '.join(left)}." if left else ""
    return f"Columns that are filled: {sum(each.used for each in mapping)}.{rest}"


def _named(problem: Problem, mapping: tuple[MappedColumn, ...]) -> Problem:
    """Return a problem of the definition as one of the row or question that decides its path."""
    if problem.path.startswith("sink.create_table.order_by"):
        return Problem("order_by", problem.text)
    used = [index for index, each in enumerate(mapping) if each.used]
    for number, index in enumerate(used):
        if problem.path.startswith(f"sink.mapping[{number}]"):
            key = "column" if problem.path.endswith("column_name") else "type"
            return Problem(f"{key}.{index}", problem.text)
    return problem


STEP = Step("columns", "Columns", "Which field fills which column, and with which type.", _ask, _answer)
