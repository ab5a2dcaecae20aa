"""The value of a transformation as a field: of the type that its definition names (`output_type`), or as it is.

nil stays NULL. A value that the type does not hold exactly (3.7 as an int, "x" as a bool) is an error of the record.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.expressions.columns import variants
from glassflow_dagster.expressions.columns.compile import Compiled
from glassflow_dagster.expressions.columns.functions import Operand, number_of, text_of
from glassflow_dagster.expressions.language.outputs import TEXT_LIST, OutputKind, output_kind
from glassflow_dagster.expressions.language.signatures import ELEMENTS, LISTS, Kind

# How a field of each kind is carried.
FIELD_TYPES: dict[OutputKind, str] = {
    "string": "string",
    "int": "bigint",
    "uint": "decimal(20,0)",
    "float": "double",
    "bool": "boolean",
    "array": "string",
    "map": "string",
    **dict.fromkeys(("decimal", "bigint", "ubigint"), "string"),
}
# What is a field as its JSON text only.
_INSIDE: frozenset[Kind] = frozenset({"array", "map", *LISTS})
# As many digits as a JSON number may have (scala/decode/StrictJson.scala): the time to read them grows with the square
# of their count.
_INTEGER_TEXT = r"^[+-]?\d{1,1000}\z"


def as_output(compiled: Compiled, output_type: str) -> Compiled:
    """Convert a compiled expression to what a decoded field carries.

    The result's kind is that of `output_kind`, its value a column of FIELD_TYPES[kind]: arrays and objects are their
    JSON text. output_type: the definition's word, which may be empty.
    """
    wanted = output_kind(compiled.kind, output_type)
    if compiled.kind == "nil":
        return Compiled(F.lit(None).cast(FIELD_TYPES[wanted]), compiled.error, wanted)
    operand = Operand(compiled.value, compiled.kind)
    value = _texts(operand) if output_type == TEXT_LIST else _CONVERSIONS[wanted](operand)
    lost = compiled.error.isNull() & compiled.value.isNotNull() & value.isNull()
    error = F.coalesce(compiled.error, F.when(lost, F.lit(f"the value is no {output_type or wanted}")))
    return Compiled(value.cast(FIELD_TYPES[wanted]), error, wanted)


def _text(operand: Operand) -> Column:
    if operand.kind in _INSIDE:
        return F.to_json(operand.value)
    if operand.kind == "time":
        return F.date_format(operand.value, "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return text_of(operand)


def _integer(operand: Operand) -> Column:
    return _whole(operand, "bigint")


def _unsigned(operand: Operand) -> Column:
    value = _whole(operand, "decimal(20,0)")
    # A literal of Spark's Java side ends at 2^63 - 1.
    return F.when(value.between(F.lit(0), F.lit(str(2**64 - 1)).cast("decimal(20,0)")), value)


def _whole(operand: Operand, carrier: str) -> Column:
    """Give a whole number, or the text of one, exactly."""
    match operand.kind:
        case "int" | "uint":
            return operand.value.try_cast(carrier)
        case "string":
            return F.when(operand.value.rlike(_INTEGER_TEXT), operand.value.try_cast(carrier))
        case "any":
            exact = variants.whole(operand.value).try_cast(carrier)
            text = variants.scalar(operand.value, "string")
            of_text = F.when(text.rlike(_INTEGER_TEXT), text.try_cast(carrier))
            return F.coalesce(exact, of_text, _of_float(variants.scalar(operand.value, "float"), carrier))
        case "float":
            return _of_float(operand.value, carrier)
    return F.lit(None).cast(carrier)


def _of_float(number: Column, carrier: str) -> Column:
    whole = number.try_cast(carrier)
    return F.when(whole.cast("double") == number, whole)


def _number(operand: Operand) -> Column:
    if operand.kind in ("bool", "time") or operand.kind in _INSIDE:
        return F.lit(None).cast("double")
    return number_of(operand)


def _truth(operand: Operand) -> Column:
    match operand.kind:
        case "bool":
            return operand.value
        case "any":
            return variants.scalar(operand.value, "bool")
        case "string":
            return F.when(operand.value.isin("true", "false"), operand.value == F.lit("true"))
    return F.lit(None).cast("boolean")


def _texts(operand: Operand) -> Column:
    """Write a list as the JSON text of a list of texts; a null in it stays one."""
    if operand.kind not in ELEMENTS:
        return F.lit(None).cast("string")
    inner = ELEMENTS[operand.kind]
    elements = operand.value if operand.kind in LISTS else variants.elements(operand.value)

    def text(element: Column) -> Column:
        return text_of(Operand(variants.without_null(element) if inner == "any" else element, inner))

    return F.to_json(F.transform(elements, text))


def _array(operand: Operand) -> Column:
    if operand.kind == "array" or operand.kind in LISTS:
        return F.to_json(operand.value)
    if operand.kind == "any":
        return F.when(variants.elements(operand.value).isNotNull(), F.to_json(operand.value))
    return F.lit(None).cast("string")


def _object(operand: Operand) -> Column:
    match operand.kind:
        case "map":
            return F.to_json(operand.value)
        case "any":
            return F.when(variants.entries(operand.value).isNotNull(), F.to_json(operand.value))
    return F.lit(None).cast("string")


def _digits(operand: Operand) -> Column:
    """Pass a number of many digits through; nothing else becomes one."""
    return operand.value


_CONVERSIONS = {
    "string": _text,
    "int": _integer,
    "uint": _unsigned,
    "float": _number,
    "bool": _truth,
    "array": _array,
    "map": _object,
    **dict.fromkeys(("decimal", "bigint", "ubigint"), _digits),
}
