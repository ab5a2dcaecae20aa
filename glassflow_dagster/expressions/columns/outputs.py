"""The value of a transformation as the type that its definition names (`output_type`).

nil stays NULL. A value that the type does not hold exactly (3.7 as an int, "x" as a bool) is an error of the record.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.expressions.columns import variants
from glassflow_dagster.expressions.columns.compile import COLUMN_TYPES, Compiled
from glassflow_dagster.expressions.columns.functions import Operand, number_of, text_of
from glassflow_dagster.expressions.language.signatures import Kind

# GlassFlow's names; any other name leaves the value as it is.
OUTPUT_KINDS: dict[str, Kind] = {
    "string": "string",
    "int": "int",
    "int64": "int",
    "float64": "float",
    "bool": "bool",
    "[]string": "strings",
}


def as_output(compiled: Compiled, output_type: str) -> Compiled:
    """Convert a compiled expression; for a type of OUTPUT_KINDS its value is a column of that kind.

    Where the type names none of them, objects, arrays and values of unknown type become JSON text.
    """
    wanted = OUTPUT_KINDS.get(output_type)
    if wanted is None:
        inner = compiled.kind in ("array", "map", "any")
        return Compiled(F.to_json(compiled.value), compiled.error, "string") if inner else compiled
    if compiled.kind in (wanted, "nil"):
        return Compiled(compiled.value.cast(COLUMN_TYPES[wanted]), compiled.error, wanted)
    value = _converted(compiled, wanted)
    lost = compiled.error.isNull() & compiled.value.isNotNull() & value.isNull()
    error = F.coalesce(compiled.error, F.when(lost, F.lit(f"the value is no {output_type}")))
    return Compiled(value, error, wanted)


def _converted(compiled: Compiled, wanted: Kind) -> Column:
    operand = Operand(compiled.value, compiled.kind)
    match wanted:
        case "string":
            return _text(operand)
        case "int":
            return _integer(operand)
        case "float":
            return _number(operand)
        case "bool":
            return _truth(operand)
    listed = compiled.kind in ("array", "any")
    texts = F.transform(variants.elements(compiled.value), variants.as_text) if listed else F.lit(None)
    return texts.cast("array<string>")


def _text(operand: Operand) -> Column:
    match operand.kind:
        case "array" | "map":
            return variants.as_text(operand.value)
        case "strings":
            return F.to_json(operand.value)
        case "time":
            return F.date_format(operand.value, "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return text_of(operand)


def _integer(operand: Operand) -> Column:
    if operand.kind in ("string", "uint"):
        return F.when(operand.value.cast("string").rlike(r"^[+-]?\d+\z"), operand.value.try_cast("bigint"))
    number = _number(operand)
    whole = number.try_cast("bigint")
    return F.when(whole.cast("double") == number, whole)


def _number(operand: Operand) -> Column:
    if operand.kind in ("bool", "array", "map", "strings", "time"):
        return F.lit(None).cast("double")
    return number_of(operand)


def _truth(operand: Operand) -> Column:
    if operand.kind == "any":
        return variants.scalar(operand.value, "bool")
    if operand.kind == "string":
        return F.when(operand.value.isin("true", "false"), operand.value == F.lit("true"))
    return F.lit(None).cast("boolean")
