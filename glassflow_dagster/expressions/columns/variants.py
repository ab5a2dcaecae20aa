"""Values inside undeclared objects and arrays, as Spark VARIANTs: what they are, and their elements.

Everywhere here a JSON null is SQL NULL, and no question raises an error: a value that is not what was asked for
gives NULL.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.expressions.language.signatures import Kind

_NUMBER = "^(TINYINT|SMALLINT|INT|BIGINT|DECIMAL|FLOAT|DOUBLE)"
_WHOLE = r"^(TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+,0\))\z"


def parsed(json_text: Column) -> Column:
    """Read the JSON text of a declared array or object."""
    return F.try_parse_json(json_text)


def elements(value: Column) -> Column:
    """Give an array's elements: ARRAY<VARIANT>."""
    return F.try_variant_get(value, "$", "array<variant>")


def entries(value: Column) -> Column:
    """Give an object's entries: MAP<STRING, VARIANT>."""
    return F.try_variant_get(value, "$", "map<string,variant>")


def without_null(value: Column) -> Column:
    """Make a JSON null SQL NULL."""
    return F.when(~F.is_variant_null(value), value)


def scalar(value: Column, kind: Kind) -> Column:
    """Give the text, truth value or number (DOUBLE, as Go reads JSON) that a variant is, NULL if it is not one."""
    shape = F.schema_of_variant(value)
    if kind == "string":
        return F.when(shape == F.lit("STRING"), F.try_variant_get(value, "$", "string"))
    if kind == "bool":
        return F.when(shape == F.lit("BOOLEAN"), F.try_variant_get(value, "$", "boolean"))
    return F.when(shape.rlike(_NUMBER), F.try_variant_get(value, "$", "double"))


def whole(value: Column) -> Column:
    """Give a number that is written without a fraction, digit by digit: DECIMAL(38,0), NULL for all else."""
    shape = F.schema_of_variant(value)
    return F.when(shape.rlike(_WHOLE), F.try_variant_get(value, "$", "decimal(38,0)"))


def as_text(value: Column) -> Column:
    """Write a text or truth value as it is, an array or object as JSON."""
    return F.try_variant_get(value, "$", "string")


def same(left: Column, right: Column) -> Column:
    """Whether two variants that are not NULL are the same: BOOLEAN, never NULL for such."""
    alike = F.coalesce(*(scalar(left, kind) == scalar(right, kind) for kind in ("string", "bool")))
    numbers = scalar(left, "float") == scalar(right, "float")
    shapes = F.schema_of_variant(left) == F.schema_of_variant(right)
    return F.coalesce(numbers, alike, shapes & (as_text(left) == as_text(right)), F.lit(0).cast("boolean"))
