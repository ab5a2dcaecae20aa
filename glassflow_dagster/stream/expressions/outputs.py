"""Convert the result of a transform's expression to a field of the `output_type` that the definition declares.

nil stays NULL. A value that the type does not hold exactly (3.7 as an int, "x" as a bool) is an error of the record.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions.outputs import TEXT_LIST, OutputKind, output_kind
from glassflow_dagster.definition.expressions.signatures import ELEMENTS, LISTS, Kind
from glassflow_dagster.stream.expressions import variants
from glassflow_dagster.stream.expressions.compile import Compiled
from glassflow_dagster.stream.expressions.functions import Operand, number_of, text_of

# Field kind -> Spark type of its column.
FIELD_TYPES: dict[OutputKind, str] = {
    "string": "string",
    "int": "bigint",
    "uint": "decimal(20,0)",
    "float": "double",
    "bool": "boolean",
    "array": "string",
    "map": "string",
    **dict.fromkeys(("decimal", "bigint", "ubigint", "any"), "string"),
}
# Expression kinds that become a field as JSON text only.
_JSON_KINDS: frozenset[Kind] = frozenset({"array", "map", *LISTS})
# At most as many digits as in a JSON number (scala/decode/StrictJson.scala): the time to parse grows with the square of
# the number of digits.
_INTEGER_TEXT = r"^[+-]?\d{1,1000}\z"


def as_output(compiled: Compiled, output_type: str) -> Compiled:
    """Convert a compiled expression to a field like those of a decoded record.

    Return a `Compiled` of the kind that `output_kind` chooses; its value is a column of FIELD_TYPES[kind], with arrays,
    objects and values of any kind as JSON text. A value that does not convert is an error. output_type: as the
    definition declares it, empty for no conversion.
    """
    result_kind = output_kind(compiled.kind, output_type)
    if compiled.kind == "nil":
        return Compiled(F.lit(None).cast(FIELD_TYPES[result_kind]), compiled.error, result_kind)
    operand = Operand(compiled.value, compiled.kind)
    value = _to_text_list(operand) if output_type == TEXT_LIST else _CONVERSIONS[result_kind](operand)
    not_converted = compiled.error.isNull() & compiled.value.isNotNull() & value.isNull()
    error = F.coalesce(
        compiled.error, F.when(not_converted, F.lit(f"the value is not of type {output_type or result_kind}"))
    )
    return Compiled(value.cast(FIELD_TYPES[result_kind]), error, result_kind)


def _to_text(operand: Operand) -> Column:
    """Convert to text: arrays and objects to JSON, a time to ISO 8601 in UTC, any other value in Go's %v format."""
    if operand.kind in _JSON_KINDS:
        return F.to_json(operand.value)
    if operand.kind == "time":
        return F.date_format(operand.value, "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return text_of(operand)


def _to_int(operand: Operand) -> Column:
    return _to_whole_number(operand, "bigint")


def _to_uint(operand: Operand) -> Column:
    """Convert as `_to_whole_number` does, to DECIMAL(20,0); NULL also for a number that UINT64 cannot hold."""
    value = _to_whole_number(operand, "decimal(20,0)")
    # A literal of Spark's Java side ends at 2^63 - 1.
    return F.when(value.between(F.lit(0), F.lit(str(2**64 - 1)).cast("decimal(20,0)")), value)


def _to_whole_number(operand: Operand, spark_type: str) -> Column:
    """Convert an integer, the text of one, or a float without a fraction, exactly; NULL for any other value.

    spark_type: of the result.
    """
    match operand.kind:
        case "int" | "uint":
            return operand.value.try_cast(spark_type)
        case "string":
            return F.when(operand.value.rlike(_INTEGER_TEXT), operand.value.try_cast(spark_type))
        case "any":
            exact = variants.whole(operand.value).try_cast(spark_type)
            text = variants.scalar(operand.value, "string")
            number_of_text = F.when(text.rlike(_INTEGER_TEXT), text.try_cast(spark_type))
            return F.coalesce(
                exact, number_of_text, _whole_of_float(variants.scalar(operand.value, "float"), spark_type)
            )
        case "float":
            return _whole_of_float(operand.value, spark_type)
    return F.lit(None).cast(spark_type)


def _whole_of_float(number: Column, spark_type: str) -> Column:
    """Cast a DOUBLE without a fraction to an integer type; NULL for one with a fraction, or too large."""
    integer = number.try_cast(spark_type)
    return F.when(integer.cast("double") == number, integer)


def _to_float(operand: Operand) -> Column:
    """Convert a number or the text of one to DOUBLE; NULL for any other value."""
    if operand.kind in ("bool", "time") or operand.kind in _JSON_KINDS:
        return F.lit(None).cast("double")
    return number_of(operand)


def _to_bool(operand: Operand) -> Column:
    """Convert a bool, or a field's text `true` or `false`, to BOOLEAN.

    NULL for any other value, also for a text inside a JSON value (kind any): the caller reports it as an error.
    """
    match operand.kind:
        case "bool":
            return operand.value
        case "any":
            return variants.scalar(operand.value, "bool")
        case "string":
            return F.when(operand.value.isin("true", "false"), operand.value == F.lit("true"))
    return F.lit(None).cast("boolean")


def _to_text_list(operand: Operand) -> Column:
    """Convert a list to JSON text with each element as a text; a null element stays null. NULL for what is no list."""
    if operand.kind not in ELEMENTS:
        return F.lit(None).cast("string")
    element_kind = ELEMENTS[operand.kind]
    elements = operand.value if operand.kind in LISTS else variants.elements(operand.value)

    def text(element: Column) -> Column:
        return text_of(Operand(variants.without_null(element) if element_kind == "any" else element, element_kind))

    return F.to_json(F.transform(elements, text))


def _to_array(operand: Operand) -> Column:
    """Convert a list or JSON array to its JSON text; NULL for any other value."""
    if operand.kind == "array" or operand.kind in LISTS:
        return F.to_json(operand.value)
    if operand.kind == "any":
        return F.when(variants.elements(operand.value).isNotNull(), F.to_json(operand.value))
    return F.lit(None).cast("string")


def _to_object(operand: Operand) -> Column:
    """Convert an object to its JSON text; NULL for any other value."""
    match operand.kind:
        case "map":
            return F.to_json(operand.value)
        case "any":
            return F.when(variants.entries(operand.value).isNotNull(), F.to_json(operand.value))
    return F.lit(None).cast("string")


def _to_any(operand: Operand) -> Column:
    """Return a value of any kind as JSON text."""
    return F.to_json(operand.value)


def _unchanged_digits(operand: Operand) -> Column:
    """Return a decimal or an integer beyond 64 bits unchanged: its column is text; no other kind converts to it."""
    return operand.value


_CONVERSIONS = {
    "string": _to_text,
    "int": _to_int,
    "uint": _to_uint,
    "float": _to_float,
    "bool": _to_bool,
    "array": _to_array,
    "map": _to_object,
    **dict.fromkeys(("decimal", "bigint", "ubigint"), _unchanged_digits),
    "any": _to_any,
}
