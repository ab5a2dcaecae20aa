"""Resolvers for attributes whose value is text, whatever it looks like.

Dagster evaluates a rendered template as a Python literal: of the password `"12345"`, or of `{{ env.PASSWORD }}` with
such a value, it makes a number. These resolvers keep the text.
"""

from typing import Any

import dagster as dg
from jinja2 import StrictUndefined, Template

from glassflow_dagster.errors import GlassflowError


def text(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """Return the resolver of a text."""
    return dg.Resolver(
        render, model_field_type=str, description=description, examples=examples, inject_before_resolve=False
    )


def texts_within(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """Return the resolver of an object or a list, of which every text may be a template."""
    return dg.Resolver(
        render_within,
        model_field_type=dict[str, Any],
        description=description,
        examples=examples,
        inject_before_resolve=False,
    )


def as_written(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """Return the resolver of an object of which nothing is a template."""
    return dg.Resolver(
        lambda _, value: value,
        model_field_type=dict[str, Any],
        description=description,
        examples=examples,
        inject_before_resolve=False,
    )


def render(context: dg.ResolutionContext, value: str | None) -> str | None:
    """Return a text with its templates rendered; raises `GlassflowError` for one that refers to nothing."""
    if value is None or "{{" not in value:
        return value
    # First as Dagster does it, whose error has the position in the file.
    if context.resolve_value(value) is None:
        raise GlassflowError(f"{value}: refers to nothing; set the variable, or correct its name")
    return str(Template(value, undefined=StrictUndefined).render(**context.scope))


def render_within(context: dg.ResolutionContext, value: Any) -> Any:
    """Return a value with the templates in all its texts rendered; raises `GlassflowError` as `render`."""
    if isinstance(value, dict):
        return {key: render_within(context, item) for key, item in value.items()}
    if isinstance(value, list):
        return [render_within(context, item) for item in value]
    return render(context, value) if isinstance(value, str) else value
