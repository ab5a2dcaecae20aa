"""Read values inside undeclared objects and arrays, which are Spark VARIANTs.

No function raises an error: each returns NULL for a JSON null and for a value of another type than it reads.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions.signatures import Kind

_NUMBER = "^(TINYINT|SMALLINT|INT|BIGINT|DECIMAL|FLOAT|DOUBLE)"
_WHOLE = r"^(TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+,0\))\z"


def parsed(json_text: Column) -> Column:
    """Parse JSON text: STRUCT<value VARIANT, problem STRING>, with NULL in one of them; NULL for NULL.

    problem: why there is no VARIANT that holds just what the text says (scala/functions/JsonVariant.scala).
    """
    return F.call_function("glassflow_variant", json_text)


def elements(value: Column) -> Column:
    """Return the elements of a JSON array: ARRAY<VARIANT>, NULL for any other value."""
    return F.try_variant_get(value, "$", "array<variant>")


def entries(value: Column) -> Column:
    """Return the entries of a JSON object: MAP<STRING, VARIANT>, NULL for any other value."""
    return F.try_variant_get(value, "$", "map<string,variant>")


def without_null(value: Column) -> Column:
    """Replace a VARIANT that holds JSON null by SQL NULL."""
    return F.when(~F.is_variant_null(value), value)


def scalar(value: Column, kind: Kind) -> Column:
    """Return a VARIANT as STRING, BOOLEAN or DOUBLE (kind string, bool or float); NULL for a value of another type.

    All numbers are DOUBLE, as Go parses JSON.
    """
    schema = F.schema_of_variant(value)
    if kind == "string":
        return F.when(schema == F.lit("STRING"), F.try_variant_get(value, "$", "string"))
    if kind == "bool":
        return F.when(schema == F.lit("BOOLEAN"), F.try_variant_get(value, "$", "boolean"))
    return F.when(schema.rlike(_NUMBER), F.try_variant_get(value, "$", "double"))


def whole(value: Column) -> Column:
    """Return a number that is written without a fraction, exactly: DECIMAL(38,0), NULL for any other value."""
    schema = F.schema_of_variant(value)
    return F.when(schema.rlike(_WHOLE), F.try_variant_get(value, "$", "decimal(38,0)"))


def as_text(value: Column) -> Column:
    """Return a value as STRING: a text or bool as it is, an array or object as JSON text."""
    return F.try_variant_get(value, "$", "string")


def same(left: Column, right: Column) -> Column:
    """Return whether two VARIANTs are equal: BOOLEAN, never NULL. Neither may be NULL.

    Numbers are compared as DOUBLE, whatever their VARIANT type; arrays and objects as JSON text.
    """
    texts_or_bools = F.coalesce(*(scalar(left, kind) == scalar(right, kind) for kind in ("string", "bool")))
    numbers = scalar(left, "float") == scalar(right, "float")
    same_schema = F.schema_of_variant(left) == F.schema_of_variant(right)
    return F.coalesce(
        numbers, texts_or_bools, same_schema & (as_text(left) == as_text(right)), F.lit(0).cast("boolean")
    )
