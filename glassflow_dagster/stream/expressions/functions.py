"""Build the Spark column of each function in signatures.py.

The builder of a function takes operands that compile.py has converted to the types of its parameters, and returns the
columns of the value and, where the function can fail, of the problem. GlassFlow's helpers return a default where an
operand is NULL; expr's own functions never get a NULL. No builder uses a Spark function that raises for a value: one
record must not fail a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.expressions.durations import microseconds
from glassflow_dagster.definition.expressions.signatures import LISTS, Kind
from glassflow_dagster.stream.expressions import variants
from glassflow_dagster.stream.expressions.lists import evaluate_once, slice_list


@dataclass(frozen=True)
class Operand:
    """A function's argument: its column, the kind of its values, and the text itself when it is a string literal."""

    value: Column
    kind: Kind
    literal: str | None = None


@dataclass(frozen=True)
class FunctionResult:
    """The columns of a function call.

    problem: STRING, the reason where the call fails, NULL where it succeeds; None when it cannot fail. nullable: the
    value may be nil without a problem.
    """

    value: Column
    problem: Column | None = None
    nullable: bool = False


Builder = Callable[[Sequence[Operand]], FunctionResult]

# Possessive quantifiers (++, *+): with backtracking Java would try a million digits in 10^12 ways.
_FLOAT = r"^[+-]?(\d++(\.\d*+)?|\.\d++)([eE][+-]?\d++)?\z"
_ISO_8601 = r"^\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}\.\d{6}|T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2}))\z"
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})?)?\z"
# Seconds since 1970 of the years 1 to 9999, which both Go's layouts and Spark's timestamps can write.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
# From this size on every DOUBLE is a whole number.
_ALL_WHOLE_FROM = 2**53
# Characters of the longest text that repeat() returns; expr's own limit.
_MAX_REPEATED = 1_000_000
# Most elements that uniq() and parseQuery() compare pair by pair: about a second's work. A record of 1 MB can hold
# 300,000 elements, which would take days.
_MAX_COMPARED = 1_000
# Levels of nested lists that flatten() opens.
_MAX_FLATTEN_DEPTH = 3


NOT_FINITE = "the result is not a finite number"


def is_not_finite(number: Column) -> Column:
    """Return whether a DOUBLE is NaN or infinite: BOOLEAN, NULL for NULL."""
    return F.isnan(number) | (F.abs(number) == F.lit(float("inf")))


def text_of(operand: Operand) -> Column:
    """Return a value as text in the format of Go's %v: STRING, NULL where the value is NULL."""
    if operand.kind == "float":
        return _float_text(operand.value)
    if operand.kind == "any":
        return F.coalesce(
            variants.whole(operand.value).cast("string"),
            _decimal_text(operand.value),
            _float_text(variants.scalar(operand.value, "float")),
            variants.as_text(operand.value),
        )
    return operand.value.cast("string")


def _decimal_text(value: Column) -> Column:
    """Return a VARIANT's decimal number as text with all its digits; NULL for any other value."""
    is_decimal = F.schema_of_variant(value).startswith("DECIMAL")
    return F.call_function("glassflow_number_text", F.when(is_decimal, variants.as_text(value)))


def _float_text(value: Column) -> Column:
    return F.call_function("glassflow_float_text", value)


def _len(operands: Sequence[Operand]) -> FunctionResult:
    """Return the number of characters, elements or entries; a problem for a JSON number or bool."""
    (operand,) = operands
    if operand.kind == "string":
        return FunctionResult(F.char_length(operand.value).cast("bigint"))
    if operand.kind in LISTS:
        return FunctionResult(F.size(operand.value).cast("bigint"))
    size = F.coalesce(
        F.char_length(variants.scalar(operand.value, "string")),
        _size(variants.elements(operand.value)),
        _size(variants.entries(operand.value)),
    )
    return FunctionResult(size.cast("bigint"), F.when(size.isNull(), F.lit("the value has no length")))


def _size(collection: Column) -> Column:
    """Return the size of an array or map; NULL for NULL, whatever Spark's sizeOfNull setting is."""
    return F.when(collection.isNotNull(), F.size(collection))


def _upper(text: Column) -> Column:
    """Return a text in upper case, by this project's function in scala/functions/Scalars.scala."""
    return F.call_function("glassflow_upper", text)


def _lower(text: Column) -> Column:
    """Return a text in lower case, by this project's function in scala/functions/Scalars.scala."""
    return F.call_function("glassflow_lower", text)


def _trim(operands: Sequence[Operand]) -> FunctionResult:
    """Trim the characters of the second operand from both ends; without it, Go's white space."""
    text = operands[0].value
    if len(operands) > 1:
        return FunctionResult(F.trim(text, operands[1].value))
    return FunctionResult(F.call_function("glassflow_trim", text))


def _trim_prefix(operands: Sequence[Operand]) -> FunctionResult:
    """Remove the prefix from the beginning of a text, once; a text without it is unchanged."""
    text, prefix = (operand.value for operand in operands)
    without_prefix = F.substr(text, F.char_length(prefix) + F.lit(1))
    return FunctionResult(F.when(F.startswith(text, prefix), without_prefix).otherwise(text))


def _trim_suffix(operands: Sequence[Operand]) -> FunctionResult:
    """Remove the suffix from the end of a text, once; a text without it is unchanged."""
    text, suffix = (operand.value for operand in operands)
    without_suffix = F.left(text, F.char_length(text) - F.char_length(suffix))
    return FunctionResult(F.when(F.endswith(text, suffix), without_suffix).otherwise(text))


def _replace(operands: Sequence[Operand]) -> FunctionResult:
    return FunctionResult(F.replace(*(operand.value for operand in operands)))


def _split(operands: Sequence[Operand]) -> FunctionResult:
    """Split a text at each separator, a literal; an empty separator splits it into single characters."""
    text, separator = operands[0].value, operands[1].literal
    if not separator:
        # Spark's empty regular expression gives the single characters, as Go does.
        return FunctionResult(F.split(text, ""))
    return FunctionResult(F.call_function("glassflow_split", text, F.lit(separator)))


def _split_helper(operands: Sequence[Operand]) -> FunctionResult:
    """Split like split(), but return an empty list for nil and for an empty text."""
    # NULL for nil and for an empty text.
    value = F.when(operands[0].value != F.lit(""), _split(operands).value)
    return FunctionResult(F.coalesce(value, F.array().cast("array<string>")))


def _join(operands: Sequence[Operand]) -> FunctionResult:
    """Join a list of texts with the separator, the second operand; without it, with nothing between them."""
    separator = operands[1].value if len(operands) > 1 else F.lit("")
    return FunctionResult(F.call_function("array_join", operands[0].value, separator))


def _repeat(operands: Sequence[Operand]) -> FunctionResult:
    """Repeat a text; a problem where the count is negative or the result is too long."""
    text, count = operands[0].value, operands[1].value.cast("bigint")
    length = F.try_multiply(F.char_length(text).cast("bigint"), count)
    # NULL where the product overflows: too long.
    is_short = _false_if_null(length <= F.lit(_MAX_REPEATED))
    is_valid = count.between(F.lit(0), F.lit(_MAX_REPEATED)) & is_short
    value = F.repeat(text, F.when(is_valid, count).cast("int"))
    return FunctionResult(
        value, F.when(value.isNull(), F.lit(f"a string is repeated from 0 times to {_MAX_REPEATED:,} characters"))
    )


def _index_of(operands: Sequence[Operand]) -> FunctionResult:
    """Return the position of a part in a text in characters, from 0; -1 where it is missing."""
    text, part = (operand.value for operand in operands)
    # instr counts from 1, and returns 0 where the part is missing.
    return FunctionResult((F.call_function("instr", text, part) - F.lit(1)).cast("bigint"))


def _last_index_of(operands: Sequence[Operand]) -> FunctionResult:
    """Return the last position of a part in a text in characters, from 0; -1 where it is missing."""
    text, part = (operand.value for operand in operands)
    # 1-based position in the reversed text; 0 where the part is missing.
    from_end = F.call_function("instr", F.reverse(text), F.reverse(part))
    position = F.char_length(text) - F.char_length(part) - from_end + F.lit(1)
    return FunctionResult(F.when(from_end > 0, position).otherwise(F.lit(-1)).cast("bigint"))


def _int(operands: Sequence[Operand]) -> FunctionResult:
    """Convert a number or a text to BIGINT; a problem where it is neither, or too large."""
    value = _integer(operands[0], F.lit(None).cast("bigint"))
    return FunctionResult(value, F.when(value.isNull(), F.lit("the value is not a 64-bit integer")))


def _integer(operand: Operand, of_other_text: Column) -> Column:
    """Convert to BIGINT: numbers lose their fraction, a text must be an integer.

    Return `of_other_text` for any other text and kind; NULL for a number beyond 64 bits.
    """
    if operand.kind in ("int", "uint", "float"):
        return operand.value.try_cast("bigint")
    if operand.kind == "any":
        number = variants.scalar(operand.value, "float").try_cast("bigint")
        return F.coalesce(number, integer_of_text(variants.scalar(operand.value, "string")), of_other_text)
    if operand.kind == "string":
        return F.coalesce(integer_of_text(operand.value), of_other_text)
    return of_other_text


def integer_of_text(text: Column) -> Column:
    """Parse the text of a 64-bit integer: BIGINT, NULL for any other text."""
    return F.call_function("glassflow_integer", text)


def _float(operands: Sequence[Operand]) -> FunctionResult:
    """Convert a number or the text of one to DOUBLE; anything else is a problem."""
    value = number_of(operands[0])
    return FunctionResult(value, F.when(value.isNull(), F.lit("the value is not a number")))


def number_of(operand: Operand) -> Column:
    """Convert a number or the text of one to DOUBLE; NULL for anything else."""
    if operand.kind in ("int", "uint", "float"):
        return operand.value.cast("double")
    if operand.kind == "any":
        return F.coalesce(
            variants.scalar(operand.value, "float"), _float_of_text(variants.scalar(operand.value, "string"))
        )
    return _float_of_text(operand.value.cast("string"))


def _float_of_text(text: Column) -> Column:
    return F.when(text.rlike(_FLOAT), text.try_cast("double"))


def _string(operands: Sequence[Operand]) -> FunctionResult:
    """Return a value as text, in the format of Go's %v."""
    return FunctionResult(text_of(operands[0]))


def _to_int(operands: Sequence[Operand]) -> FunctionResult:
    """Convert to BIGINT as GlassFlow's toInt(): an integer or its text, else the floor of a float; 0 for the rest.

    glassflow_to_int (scala/functions/Scalars.scala) is that of a float: 0 where its floor does not fit into 64 bits.
    """
    (operand,) = operands
    if operand.kind == "float":
        return FunctionResult(F.coalesce(F.call_function("glassflow_to_int", operand.value), F.lit(0).cast("bigint")))
    exact = operand.value if operand.kind == "int" else integer_of_text(text_of(operand))
    return FunctionResult(F.coalesce(exact, _floor(number_of(operand)).try_cast("bigint"), F.lit(0).cast("bigint")))


def _to_float(operands: Sequence[Operand]) -> FunctionResult:
    """Convert to DOUBLE as GlassFlow's toFloat(): 0.0 for what is no number."""
    return FunctionResult(F.coalesce(number_of(operands[0]), F.lit(0.0)))


def _abs(operands: Sequence[Operand]) -> FunctionResult:
    """Return the absolute value; a problem for the least BIGINT, whose opposite overflows."""
    (number,) = operands
    if number.kind == "float":
        return FunctionResult(F.abs(number.value))
    negated = F.try_subtract(F.lit(0).cast("bigint"), number.value)
    value = F.when(number.value < 0, negated).otherwise(number.value)
    return FunctionResult(value, F.when(value.isNull(), F.lit("the result exceeds 64 bits")))


def _floor(value: Column) -> Column:
    """Round a DOUBLE down to a DOUBLE; Spark's floor alone would overflow its BIGINT for large values."""
    return F.when(F.abs(value) < F.lit(float(_ALL_WHOLE_FROM)), F.floor(value).cast("double")).otherwise(value)


def _floor_function(operands: Sequence[Operand]) -> FunctionResult:
    return FunctionResult(_floor(operands[0].value.cast("double")))


def _ceil(operands: Sequence[Operand]) -> FunctionResult:
    return FunctionResult(-_floor(-operands[0].value.cast("double")))


def _round(operands: Sequence[Operand]) -> FunctionResult:
    """Round to the nearest whole DOUBLE, half away from zero."""
    return FunctionResult(F.call_function("glassflow_round", operands[0].value.cast("double")))


def _min(operands: Sequence[Operand]) -> FunctionResult:
    return _extreme(operands, F.least, F.array_min)


def _max(operands: Sequence[Operand]) -> FunctionResult:
    return _extreme(operands, F.greatest, F.array_max)


def _extreme(
    operands: Sequence[Operand], of_several: Callable[..., Column], of_list: Callable[[Column], Column]
) -> FunctionResult:
    """Return the least or greatest of several numbers, or of one list of numbers: nil for an empty list.

    of_several, of_list: the Spark functions for each, such as F.least and F.array_min.
    """
    if operands[0].kind in LISTS:
        numbers, problem = _numbers_of(operands[0])
        return FunctionResult(of_list(numbers), problem, nullable=True)
    values = [operand.value for operand in operands]
    return FunctionResult(of_several(*values) if len(values) > 1 else values[0])


def _numbers_of(elements: Operand) -> tuple[Column, Column]:
    """Return a list's numbers, ARRAY<BIGINT> or ARRAY<DOUBLE>, and the problem where an element is not a number."""
    numbers = elements.value
    if elements.kind == "values":
        numbers = F.transform(elements.value, lambda element: variants.scalar(element, "float"))
    has_other = F.exists(numbers, lambda number: number.isNull())
    return numbers, F.when(has_other, F.lit("an element is not a number"))


def _sum(operands: Sequence[Operand]) -> FunctionResult:
    """Add up a list: BIGINT for integers, with overflow as a problem, else DOUBLE."""
    numbers, problem = _numbers_of(operands[0])
    if operands[0].kind != "ints":
        return FunctionResult(F.aggregate(numbers, F.lit(0.0), lambda total, number: total + number), problem)
    # try_add: NULL on overflow.
    total = F.aggregate(numbers, F.lit(0).cast("bigint"), F.try_add)
    overflow = F.when(total.isNull(), F.lit("the result exceeds 64 bits"))
    return FunctionResult(total, F.coalesce(problem, overflow))


def _mean(operands: Sequence[Operand]) -> FunctionResult:
    """Return the mean of a list as DOUBLE; 0.0 for an empty list."""
    numbers, problem = _numbers_of(operands[0])
    total = F.aggregate(numbers, F.lit(0.0), lambda total, number: total + number.cast("double"))
    # try_divide: NULL for an empty list.
    return FunctionResult(F.coalesce(F.try_divide(total, F.size(numbers).cast("double")), F.lit(0.0)), problem)


def _median(operands: Sequence[Operand]) -> FunctionResult:
    """Return the median of a list as DOUBLE; 0.0 for an empty list."""
    numbers, problem = _numbers_of(operands[0])

    def middle(ordered: Column) -> Column:
        size = F.size(ordered)
        # The two middle elements: the same one in a list of odd size.
        upper = F.get(ordered, F.floor(size / F.lit(2)).cast("int")).cast("double")
        lower = F.get(ordered, F.floor((size - F.lit(1)) / F.lit(2)).cast("int")).cast("double")
        # Halved first: the sum may be beyond the greatest float.
        # NULL for an empty list.
        return F.coalesce(lower / F.lit(2.0) + upper / F.lit(2.0), F.lit(0.0))

    return FunctionResult(evaluate_once(F.array_sort(numbers), middle), problem)


def _count(operands: Sequence[Operand]) -> FunctionResult:
    """Return the number of elements that are true; an element that is no bool is a problem.

    "values" is a list of JSON values; in a list of any other kind than bools every element is a problem.
    """
    elements = operands[0].value
    problem = F.lit("an element is not true or false")
    if operands[0].kind == "values":
        elements = F.transform(elements, lambda element: variants.scalar(element, "bool"))
    if operands[0].kind not in ("values", "bools"):
        return FunctionResult(F.lit(0).cast("bigint"), F.when(F.size(elements) > 0, problem))
    has_other = F.exists(elements, lambda element: element.isNull())
    count = F.size(F.filter(elements, lambda element: element)).cast("bigint")
    return FunctionResult(count, F.when(has_other, problem))


def _element_at(operand: Operand, index: Callable[[Column], Column]) -> FunctionResult:
    """Return the element of a list at an index (from 0), which is computed from the list; nil where it is missing."""
    element = evaluate_once(operand.value, lambda elements: F.get(elements, index(elements)))
    return FunctionResult(variants.without_null(element) if operand.kind == "values" else element, nullable=True)


def _first_element(operands: Sequence[Operand]) -> FunctionResult:
    return _element_at(operands[0], lambda _: F.lit(0))


def _last_element(operands: Sequence[Operand]) -> FunctionResult:
    return _element_at(operands[0], lambda elements: F.size(elements) - F.lit(1))


def _take(operands: Sequence[Operand]) -> FunctionResult:
    """Return the first elements of a list, as many as the second operand says; a negative number is a problem."""
    elements, count = operands[0].value, operands[1].value.cast("bigint")
    return FunctionResult(
        slice_list(elements, None, F.greatest(count, F.lit(0).cast("bigint"))),
        F.when(count < 0, F.lit("the number is negative")),
    )


def _reverse(operands: Sequence[Operand]) -> FunctionResult:
    return FunctionResult(F.reverse(operands[0].value))


def _sort(operands: Sequence[Operand]) -> FunctionResult:
    """Sort a list, ascending unless the second operand is "desc"."""
    (elements, *order) = operands
    ordered, problem = _sort_variants(elements.value) if elements.kind == "values" else _sort_scalars(elements.value)
    return FunctionResult(F.reverse(ordered) if order and order[0].literal == "desc" else ordered, problem)


def _sort_scalars(elements: Column) -> tuple[Column, Column]:
    """Sort an array of texts, numbers or bools; return it and the problem where an element is nil."""
    has_nil = F.exists(elements, lambda element: element.isNull())
    return F.array_sort(elements), F.when(has_nil, F.lit("nil cannot be sorted"))


def _sort_variants(elements: Column) -> tuple[Column, Column]:
    """Sort ARRAY<VARIANT> when all elements are numbers, or all are texts; return it and the problem otherwise."""

    def comparator(kind: Kind) -> Callable[[Column, Column], Column]:
        def compare(left: Column, right: Column) -> Column:
            left_value, right_value = variants.scalar(left, kind), variants.scalar(right, kind)
            return (
                F.when(left_value < right_value, F.lit(-1)).when(left_value > right_value, F.lit(1)).otherwise(F.lit(0))
            )

        return compare

    def all_are(kind: Kind) -> Column:
        return F.forall(elements, lambda element: variants.scalar(element, kind).isNotNull())

    # NULL when neither case applies.
    ordered = F.when(all_are("float"), F.array_sort(elements, comparator("float"))).when(
        all_are("string"), F.array_sort(elements, comparator("string"))
    )
    return ordered, F.when(ordered.isNull(), F.lit("the elements are not all numbers or all strings"))


def _uniq(operands: Sequence[Operand]) -> FunctionResult:
    """Return the distinct elements of a list, in order.

    Spark cannot compare VARIANTs, so they are compared pair by pair; a list that is too long for that is a problem.
    """
    (elements,) = operands
    if elements.kind != "values":
        return FunctionResult(F.array_distinct(elements.value))

    def append_if_new(distinct: Column, element: Column) -> Column:
        value = variants.without_null(element)
        is_repeated = F.exists(distinct, lambda other: _is_equal(value, variants.without_null(other)))
        return F.when(is_repeated, distinct).otherwise(F.array_append(distinct, element))

    too_many = F.size(elements.value) > _MAX_COMPARED
    value = F.aggregate(F.when(~too_many, elements.value), F.array().cast("array<variant>"), append_if_new)
    return FunctionResult(value, F.when(too_many, F.lit(f"the list has more than {_MAX_COMPARED:,} elements")))


def _is_equal(left: Column, right: Column) -> Column:
    """Compare two VARIANTs: BOOLEAN, never NULL; nil equals only nil."""
    has_nil = left.isNull() | right.isNull()
    return F.when(has_nil, left.isNull() & right.isNull()).otherwise(variants.same(left, right))


def _flatten(operands: Sequence[Operand]) -> FunctionResult:
    """Replace each list in a list by its elements, down to a fixed depth; deeper lists are a problem."""
    (elements,) = operands
    # Only "values" (JSON values) can hold lists.
    if elements.kind != "values":
        return FunctionResult(elements.value)
    value = elements.value
    for _ in range(_MAX_FLATTEN_DEPTH):
        value = F.flatten(F.transform(value, lambda element: F.coalesce(variants.elements(element), F.array(element))))
    deeper = F.exists(value, lambda element: variants.elements(element).isNotNull())
    return FunctionResult(value, F.when(deeper, F.lit(f"lists are nested deeper than {_MAX_FLATTEN_DEPTH}")))


def _concat(operands: Sequence[Operand]) -> FunctionResult:
    """Concatenate lists: of their common element type, or of VARIANTs when the types differ."""
    kinds = {operand.kind for operand in operands}
    if len(kinds) == 1:
        return FunctionResult(F.concat(*(operand.value for operand in operands)))
    return FunctionResult(F.concat(*(_as_variants(operand) for operand in operands)))


def _as_variants(elements: Operand) -> Column:
    """Return a list as ARRAY<VARIANT>, which "values" is already."""
    if elements.kind == "values":
        return elements.value
    return F.transform(elements.value, lambda element: element.cast("variant"))


def _values(operands: Sequence[Operand]) -> FunctionResult:
    """Return the values of an object: ARRAY<VARIANT>."""
    return FunctionResult(F.map_values(operands[0].value), _object_problem(operands[0]))


def _to_pairs(operands: Sequence[Operand]) -> FunctionResult:
    """Turn an object into the list of its `[name, value]` pairs: `{a: 1, b: 2}` -> `[["a", 1], ["b", 2]]`.

    In: MAP<STRING, VARIANT>, NULL for what is no object, which is a problem. Out: ARRAY<VARIANT> of arrays of two.
    """

    def pair(entry: Column) -> Column:
        # One element type for the name and the value: VARIANT.
        return F.array(entry["key"].cast("variant"), entry["value"]).cast("variant")

    return FunctionResult(F.transform(F.map_entries(operands[0].value), pair), _object_problem(operands[0]))


def _object_problem(operand: Operand) -> Column:
    """Return the problem of a value that is no object: its MAP is NULL."""
    return F.when(operand.value.isNull(), F.lit("the value is not an object"))


def _to_json(operands: Sequence[Operand]) -> FunctionResult:
    """Return the compact JSON of a value; a problem for NaN and infinity, which JSON cannot write."""
    (operand,) = operands
    problem = F.when(is_not_finite(operand.value), F.lit(NOT_FINITE)) if operand.kind == "float" else None
    return FunctionResult(F.to_json(operand.value.cast("variant")), problem)


def _from_json(operands: Sequence[Operand]) -> FunctionResult:
    """Parse JSON text to a VARIANT; null is nil, JSON that no VARIANT holds is a problem."""
    parsed = variants.parsed(operands[0].value)
    return FunctionResult(variants.without_null(parsed["value"]), parsed["problem"], nullable=True)


def _to_base64(operands: Sequence[Operand]) -> FunctionResult:
    return FunctionResult(F.base64(operands[0].value.cast("binary")))


def _from_base64(operands: Sequence[Operand]) -> FunctionResult:
    """Decode base64 to text; a problem where it is no base64, or its bytes are not UTF-8."""
    value = F.try_validate_utf8(F.try_to_binary(operands[0].value, F.lit("base64")).cast("string"))
    return FunctionResult(value, F.when(value.isNull(), F.lit("the value is not Base64 text")))


def _duration(operands: Sequence[Operand]) -> FunctionResult:
    """Return a literal such as "1h30m" as BIGINT microseconds."""
    return FunctionResult(F.lit(microseconds(operands[0].literal or "")).cast("bigint"))


def _date(operands: Sequence[Operand]) -> FunctionResult:
    """Parse a date or time to TIMESTAMP; any other text is a problem."""
    text = operands[0].value
    value = F.when(text.rlike(_DATE), text.try_cast("timestamp"))
    return FunctionResult(
        value, F.when(value.isNull(), F.lit("the value is not a time; write 2024-10-28T10:00:05Z or 2024-10-28"))
    )


def _parse_iso_8601(operands: Sequence[Operand]) -> FunctionResult:
    """Parse a time to BIGINT seconds since 1970; 0 for any other text, as in GlassFlow."""
    text = operands[0].value
    seconds = F.unix_seconds(F.when(text.rlike(_ISO_8601), text.try_cast("timestamp")))
    return FunctionResult(F.coalesce(seconds, F.lit(0).cast("bigint")))


def _to_date(operands: Sequence[Operand]) -> FunctionResult:
    """Return the date of a time, or of seconds since 1970, as yyyy-MM-dd; "0" for nil, as in GlassFlow.

    Seconds outside the years 1 to 9999 are a problem.
    """
    (operand,) = operands
    if operand.kind == "nil":
        return FunctionResult(F.lit("0"))
    if operand.kind == "time":
        return FunctionResult(F.date_format(operand.value, "yyyy-MM-dd"))
    is_timestamp = operand.value.between(F.lit(_FIRST_SECOND), F.lit(_LAST_SECOND))
    seconds = operand.value if operand.kind != "float" else _floor(operand.value)
    day = F.date_format(F.timestamp_seconds(F.when(is_timestamp, seconds).cast("bigint")), "yyyy-MM-dd")
    return FunctionResult(
        F.when(operand.value.isNull(), F.lit("0")).otherwise(day),
        F.when(~is_timestamp, F.lit("the value is not a second in the years 1 to 9999")),
    )


def _url_decode(operands: Sequence[Operand]) -> FunctionResult:
    """Decode a URL-encoded text; empty for nil, and a problem for an invalid one."""
    text = operands[0].value
    decoded = F.call_function("glassflow_url_decode", text)
    return FunctionResult(
        F.coalesce(decoded, F.lit("")),
        F.when(text.isNotNull() & decoded.isNull(), F.lit("the value is not URL-encoded UTF-8")),
    )


def _query_pairs(query: Column) -> Column:
    """Parse a URL query to its decoded parameters in order: ARRAY<STRUCT<name, value>>, NULL for an invalid query."""
    parts = F.filter(F.split(query, "&"), lambda part: part != F.lit(""))
    pairs = F.transform(
        parts,
        lambda part: F.struct(
            F.try_url_decode(F.substring_index(part, "=", 1)).alias("name"),
            # From behind the "=" (counted from 1) to the end; empty for a parameter without "=".
            F.try_url_decode(F.substr(part, F.char_length(F.substring_index(part, "=", 1)) + F.lit(2))).alias("value"),
        ),
    )
    invalid = F.exists(pairs, lambda pair: pair["name"].isNull() | pair["value"].isNull())
    # Go rejects a query with semicolons, an older separator.
    return F.when(~F.contains(query, F.lit(";")) & ~invalid, pairs)


def _parse_query(operands: Sequence[Operand]) -> FunctionResult:
    """Parse a URL query to a VARIANT object of texts; the value of a repeated name is the list of its texts.

    Spark has no function that builds a VARIANT object with names of the data, so the object is written as JSON text
    and parsed.
    """
    query = operands[0].value
    too_many = F.size(F.split(query, "&")) > _MAX_COMPARED
    pairs = _query_pairs(F.when(~too_many, query))
    names = F.array_distinct(F.transform(pairs, lambda pair: pair["name"]))

    def json_entry(name: Column) -> Column:
        values = F.transform(F.filter(pairs, lambda pair: pair["name"] == name), lambda pair: pair["value"])
        json_values = F.to_json(values)
        return F.concat(
            _without_brackets(F.to_json(F.array(name))),
            F.lit(":"),
            F.when(F.size(values) == 1, _without_brackets(json_values)).otherwise(json_values),
        )

    object_text = F.concat(F.lit("{"), F.array_join(F.transform(names, json_entry), ","), F.lit("}"))
    problem = F.when(too_many, F.lit(f"the query has more than {_MAX_COMPARED:,} parameters"))
    # NULL for nil, and for an invalid or too long query: then the value is an empty object.
    parsed = variants.parsed(F.coalesce(object_text, F.lit("{}")))
    return FunctionResult(parsed["value"], F.coalesce(problem, parsed["problem"]))


def _without_brackets(json_list: Column) -> Column:
    """Return the only element of a JSON list: the text without its first and last character."""
    return F.substring(json_list, F.lit(2), F.char_length(json_list) - F.lit(2))


def _query_param(operands: Sequence[Operand]) -> FunctionResult:
    """Return the first value of a parameter of a URL query; empty where there is none."""
    query, name = (operand.value for operand in operands)
    matches = F.filter(_query_pairs(query), lambda pair: pair["name"] == name)
    return FunctionResult(F.coalesce(F.get(matches, F.lit(0))["value"], F.lit("")))


def _contains_any(text: Column, *parts: str) -> Column:
    return reduce(lambda one, other: one | other, (F.contains(text, F.lit(part)) for part in parts))


def _device(agent: Column) -> Column:
    """Return the device of a user agent in lower case: Tablet, Mobile, or Desktop for any other."""
    tablet = _contains_any(agent, "ipad") | (_contains_any(agent, "android") & ~_contains_any(agent, "mobile"))
    mobile = _contains_any(agent, "mobile", "iphone", "android")
    return F.when(tablet, F.lit("Tablet")).when(mobile, F.lit("Mobile")).otherwise(F.lit("Desktop"))


def _browser(agent: Column) -> Column:
    """Return the browser of a user agent; Edge first, since its user agent names Chrome and Safari too."""
    return (
        F.when(_contains_any(agent, "edg/"), F.lit("Edge"))
        .when(_contains_any(agent, "chrome", "crios"), F.lit("Chrome"))
        .when(_contains_any(agent, "firefox", "fxios"), F.lit("Firefox"))
        .when(_contains_any(agent, "safari"), F.lit("Safari"))
        .otherwise(F.lit("Unknown"))
    )


def _operating_system(agent: Column) -> Column:
    """Return the operating system of a user agent; iOS and Android first, since theirs name macOS and Linux too."""
    return (
        F.when(_contains_any(agent, "iphone", "ipad", "ipod"), F.lit("iOS"))
        .when(_contains_any(agent, "android"), F.lit("Android"))
        .when(_contains_any(agent, "windows"), F.lit("Windows"))
        .when(_contains_any(agent, "macintosh", "mac os"), F.lit("macOS"))
        .when(_contains_any(agent, "linux"), F.lit("Linux"))
        .otherwise(F.lit("Unknown"))
    )


# The second operand of parseUserAgent() -> the value of a user agent in lower case.
_AGENT_PARTS = {"device": _device, "browser": _browser, "os": _operating_system}


def _parse_user_agent(operands: Sequence[Operand]) -> FunctionResult:
    """Return one part of a user agent, which the literal second operand names: device, browser or system.

    Empty for an empty user agent, and for any other word.
    """
    part = _AGENT_PARTS.get(operands[1].literal or "")
    if part is None:
        return FunctionResult(F.lit(""))
    agent = _lower(operands[0].value)
    return FunctionResult(F.when(agent != F.lit(""), part(agent)).otherwise(F.lit("")))


def _waterfall(operands: Sequence[Operand]) -> FunctionResult:
    """Return the first of several values, or of one list, whose text is not empty; empty where all are."""
    if operands[0].kind in LISTS:
        element_kind = LISTS[operands[0].kind]
        elements = F.transform(operands[0].value, lambda element: text_of(Operand(element, element_kind)))
        not_empty = F.filter(elements, lambda text: text != F.lit(""))
        return FunctionResult(F.coalesce(F.get(not_empty, F.lit(0)), F.lit("")))
    texts = [text_of(operand) for operand in operands]
    return FunctionResult(F.coalesce(*(F.when(text != F.lit(""), text) for text in texts), F.lit("")))


def _extract_path_type(operands: Sequence[Operand]) -> FunctionResult:
    """Classify a URL path of web tracking, as GlassFlow's extractPathType()."""
    path = operands[0].value
    return FunctionResult(
        F.when(_contains_any(path, "/g/collect"), F.lit("collect"))
        .when(_contains_any(path, "/_/set_cookie"), F.lit("set_cookie"))
        .otherwise(F.lit("unknown"))
    )


def _has_key_prefix(operands: Sequence[Operand]) -> FunctionResult:
    """Return whether a name of an object starts with one of the prefixes; false for nil."""
    entries, prefixes = (operand.value for operand in operands)
    has_prefix = F.exists(F.map_keys(entries), lambda key: F.exists(prefixes, lambda prefix: F.startswith(key, prefix)))
    return FunctionResult(_false_if_null(has_prefix))


def _has_any_key(operands: Sequence[Operand]) -> FunctionResult:
    """Return whether an object has one of the names; false for nil."""
    entries, names = (operand.value for operand in operands)
    return FunctionResult(_false_if_null(F.arrays_overlap(F.map_keys(entries), names)))


def _keys(operands: Sequence[Operand]) -> FunctionResult:
    """Return the names of an object in alphabetical order; empty for nil."""
    keys = F.array_sort(F.map_keys(operands[0].value))
    return FunctionResult(F.coalesce(keys, F.array().cast("array<string>")))


def _false_if_null(value: Column) -> Column:
    return F.coalesce(value, F.lit(0).cast("boolean"))


def _builder_of(function: Callable[..., Column]) -> Builder:
    """Return the builder of a function that calls one Spark function with the same operands."""
    return lambda operands: FunctionResult(function(*(operand.value for operand in operands)))


def _with_default(builder: Builder, default: str | bool) -> Builder:
    """Return the builder of a helper: as the given builder, but with a default where the value is NULL."""
    return lambda operands: FunctionResult(F.coalesce(builder(operands).value, F.lit(default)))


BUILTIN_BUILDERS: Mapping[str, Builder] = {
    "len": _len,
    "lower": _builder_of(_lower),
    "upper": _builder_of(_upper),
    "trim": _trim,
    "trimPrefix": _trim_prefix,
    "trimSuffix": _trim_suffix,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "repeat": _repeat,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "hasPrefix": _builder_of(F.startswith),
    "hasSuffix": _builder_of(F.endswith),
    "int": _int,
    "float": _float,
    "string": _string,
    "abs": _abs,
    "floor": _floor_function,
    "ceil": _ceil,
    "round": _round,
    "min": _min,
    "max": _max,
    "sum": _sum,
    "mean": _mean,
    "median": _median,
    "count": _count,
    "first": _first_element,
    "last": _last_element,
    "take": _take,
    "reverse": _reverse,
    "sort": _sort,
    "uniq": _uniq,
    "flatten": _flatten,
    "concat": _concat,
    "values": _values,
    "toPairs": _to_pairs,
    "toJSON": _to_json,
    "fromJSON": _from_json,
    "toBase64": _to_base64,
    "fromBase64": _from_base64,
    "date": _date,
    "duration": _duration,
}

HELPER_BUILDERS: Mapping[str, Builder] = {
    "parseQuery": _parse_query,
    "getQueryParam": _query_param,
    "getNestedParam": _query_param,
    "parseISO8601": _parse_iso_8601,
    "toDate": _to_date,
    "urlDecode": _url_decode,
    "toString": _with_default(_string, ""),
    "upper": _with_default(_builder_of(_upper), ""),
    "lower": _with_default(_builder_of(_lower), ""),
    "trim": _with_default(_trim, ""),
    "containsStr": _with_default(_builder_of(F.contains), default=False),
    "hasPrefix": _with_default(_builder_of(F.startswith), default=False),
    "hasSuffix": _with_default(_builder_of(F.endswith), default=False),
    "split": _split_helper,
    "join": _with_default(_join, ""),
    "replace": _with_default(_replace, ""),
    "toInt": _to_int,
    "toFloat": _to_float,
    "parseUserAgent": _parse_user_agent,
    "waterfall": _waterfall,
    "extractPathType": _extract_path_type,
    "hasKeyPrefix": _has_key_prefix,
    "hasAnyKey": _has_any_key,
    "keys": _keys,
}

METHOD_BUILDERS: Mapping[Kind, Mapping[str, Callable[[Column], Column]]] = {
    "time": {
        "Unix": F.unix_seconds,
        "UnixMilli": F.unix_millis,
        "UnixMicro": F.unix_micros,
        "Year": F.year,
        "Month": F.month,
        "Day": F.day,
        "Hour": F.hour,
        "Minute": F.minute,
        "Second": F.second,
        "YearDay": F.dayofyear,
        # Go's week begins with Sunday as 0.
        "Weekday": lambda time: F.dayofweek(time) - F.lit(1),
    },
    "duration": {
        "Hours": lambda length: length / F.lit(3_600_000_000.0),
        "Minutes": lambda length: length / F.lit(60_000_000.0),
        "Seconds": lambda length: length / F.lit(1_000_000.0),
        "Milliseconds": lambda length: F.call_function("div", length, F.lit(1000)),
        "Microseconds": lambda length: length,
    },
}
