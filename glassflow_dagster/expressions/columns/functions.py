"""How each function of signatures.py becomes a Spark column.

A builder sees operands that have been converted to what its parameters take, and answers with a value and, where the
function can fail, the problem (NULL where there is none). For the helpers a default stands where an operand is NULL;
for expr's own functions NULL never arrives. No builder uses a Spark function that raises for a value: one record must
not stop a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.expressions.columns import variants
from glassflow_dagster.expressions.columns.lists import bound, part_of_list
from glassflow_dagster.expressions.language.durations import microseconds
from glassflow_dagster.expressions.language.signatures import LISTS, Kind


@dataclass(frozen=True)
class Operand:
    """A function's argument: a column, what it holds, and the text itself where the expression has a literal."""

    value: Column
    kind: Kind
    literal: str | None = None


@dataclass(frozen=True)
class Answer:
    """A function's value, and why there is none: STRING, NULL where there is one; None for what cannot fail.

    nullable: the value may be nil without a problem.
    """

    value: Column
    problem: Column | None = None
    nullable: bool = False


Builder = Callable[[Sequence[Operand]], Answer]

# What is read of a text is not given back: without the second + Java tries a million digits in 10^12 ways.
_FLOAT = r"^[+-]?(\d++(\.\d*+)?|\.\d++)([eE][+-]?\d++)?\z"
_ISO_8601 = r"^\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}\.\d{6}|T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2}))\z"
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})?)?\z"
# The seconds of the years 1 to 9999, which is what both Go's layouts and Spark's timestamps write.
_SECONDS = (-62_135_596_800, 253_402_300_799)
# From here on every float is a whole number.
_WHOLE = 2**53
# The longest text that repeat makes; expr's own limit.
_LONGEST = 1_000_000
# How many elements are compared each with each, by uniq and parseQuery: about a second's work. A record of 1 MB can
# hold 300,000, which would take days.
_COMPARED = 1_000
# How deep flatten looks.
_DEEPEST_LIST = 3


def text_of(operand: Operand) -> Column:
    """Write a value as Go's %v does; NULL where it is NULL."""
    if operand.kind == "float":
        return _float_text(operand.value)
    if operand.kind == "any":
        return F.coalesce(
            variants.whole(operand.value).cast("string"),
            _float_text(variants.scalar(operand.value, "float")),
            variants.as_text(operand.value),
        )
    return operand.value.cast("string")


def _float_text(value: Column) -> Column:
    return F.call_function("glassflow_float_text", value)


def _len(operands: Sequence[Operand]) -> Answer:
    (sized,) = operands
    if sized.kind == "string":
        return Answer(F.char_length(sized.value).cast("bigint"))
    if sized.kind in LISTS:
        return Answer(F.size(sized.value).cast("bigint"))
    size = F.coalesce(
        F.char_length(variants.scalar(sized.value, "string")),
        _size(variants.elements(sized.value)),
        _size(variants.entries(sized.value)),
    )
    return Answer(size.cast("bigint"), F.when(size.isNull(), F.lit("this has no length")))


def _size(collection: Column) -> Column:
    return F.when(collection.isNotNull(), F.size(collection))


def _upper(text: Column) -> Column:
    return F.call_function("glassflow_upper", text)


def _lower(text: Column) -> Column:
    return F.call_function("glassflow_lower", text)


def _trim(operands: Sequence[Operand]) -> Answer:
    text = operands[0].value
    if len(operands) > 1:
        return Answer(F.trim(text, operands[1].value))
    return Answer(F.call_function("glassflow_trim", text))


def _trim_prefix(operands: Sequence[Operand]) -> Answer:
    text, prefix = (operand.value for operand in operands)
    rest = F.substr(text, F.char_length(prefix) + F.lit(1))
    return Answer(F.when(F.startswith(text, prefix), rest).otherwise(text))


def _trim_suffix(operands: Sequence[Operand]) -> Answer:
    text, suffix = (operand.value for operand in operands)
    rest = F.left(text, F.char_length(text) - F.char_length(suffix))
    return Answer(F.when(F.endswith(text, suffix), rest).otherwise(text))


def _replace(operands: Sequence[Operand]) -> Answer:
    return Answer(F.replace(*(operand.value for operand in operands)))


def _split(operands: Sequence[Operand]) -> Answer:
    text, separator = operands[0].value, operands[1].literal
    if not separator:
        # Spark's empty regular expression gives the single characters, as Go does.
        return Answer(F.split(text, ""))
    return Answer(F.call_function("glassflow_split", text, F.lit(separator)))


def _split_helper(operands: Sequence[Operand]) -> Answer:
    value = F.when(operands[0].value != F.lit(""), _split(operands).value)
    return Answer(F.coalesce(value, F.array().cast("array<string>")))


def _join(operands: Sequence[Operand]) -> Answer:
    separator = operands[1].value if len(operands) > 1 else F.lit("")
    return Answer(F.call_function("array_join", operands[0].value, separator))


def _repeat(operands: Sequence[Operand]) -> Answer:
    text, times = operands[0].value, operands[1].value.cast("bigint")
    length = F.try_multiply(F.char_length(text).cast("bigint"), times)
    fits = times.between(F.lit(0), F.lit(_LONGEST)) & F.coalesce(length <= F.lit(_LONGEST), _or_false(F.lit(None)))
    value = F.repeat(text, F.when(fits, times).cast("int"))
    return Answer(value, F.when(value.isNull(), F.lit(f"a text is repeated from 0 times to {_LONGEST:,} characters")))


def _index_of(operands: Sequence[Operand]) -> Answer:
    text, part = (operand.value for operand in operands)
    return Answer((F.call_function("instr", text, part) - F.lit(1)).cast("bigint"))


def _last_index_of(operands: Sequence[Operand]) -> Answer:
    text, part = (operand.value for operand in operands)
    from_end = F.call_function("instr", F.reverse(text), F.reverse(part))
    place = F.char_length(text) - F.char_length(part) - from_end + F.lit(1)
    return Answer(F.when(from_end > 0, place).otherwise(F.lit(-1)).cast("bigint"))


def _int(operands: Sequence[Operand]) -> Answer:
    value = _integer(operands[0], F.lit(None).cast("bigint"))
    return Answer(value, F.when(value.isNull(), F.lit("this is no 64-bit integer")))


def _integer(operand: Operand, of_other_text: Column) -> Column:
    """Read an integer: numbers lose their fraction; a text is one exactly, or `of_other_text`."""
    if operand.kind in ("int", "uint", "float"):
        return operand.value.try_cast("bigint")
    if operand.kind == "any":
        number = variants.scalar(operand.value, "float").try_cast("bigint")
        return F.coalesce(number, integer_of_text(variants.scalar(operand.value, "string")), of_other_text)
    if operand.kind == "string":
        return F.coalesce(integer_of_text(operand.value), of_other_text)
    return of_other_text


def integer_of_text(text: Column) -> Column:
    """Read a whole number of 64 bits; NULL for any other text."""
    return F.call_function("glassflow_integer", text)


def _float(operands: Sequence[Operand]) -> Answer:
    value = number_of(operands[0])
    return Answer(value, F.when(value.isNull(), F.lit("this is no number")))


def number_of(operand: Operand) -> Column:
    """Read a number, or the text of one; NULL for what is neither."""
    if operand.kind in ("int", "uint", "float"):
        return operand.value.cast("double")
    if operand.kind == "any":
        return F.coalesce(
            variants.scalar(operand.value, "float"), _float_of_text(variants.scalar(operand.value, "string"))
        )
    return _float_of_text(operand.value.cast("string"))


def _float_of_text(text: Column) -> Column:
    return F.when(text.rlike(_FLOAT), text.try_cast("double"))


def _string(operands: Sequence[Operand]) -> Answer:
    return Answer(text_of(operands[0]))


def _to_int(operands: Sequence[Operand]) -> Answer:
    """Read an integer text, else the floor of a float text; what is neither is 0."""
    (operand,) = operands
    if operand.kind == "float":
        return Answer(F.coalesce(F.call_function("glassflow_to_int", operand.value), F.lit(0).cast("bigint")))
    exact = operand.value if operand.kind == "int" else integer_of_text(text_of(operand))
    return Answer(F.coalesce(exact, _floor(number_of(operand)).try_cast("bigint"), F.lit(0).cast("bigint")))


def _to_float(operands: Sequence[Operand]) -> Answer:
    return Answer(F.coalesce(number_of(operands[0]), F.lit(0.0)))


def _abs(operands: Sequence[Operand]) -> Answer:
    (number,) = operands
    if number.kind == "float":
        return Answer(F.abs(number.value))
    negated = F.try_subtract(F.lit(0).cast("bigint"), number.value)
    value = F.when(number.value < 0, negated).otherwise(number.value)
    return Answer(value, F.when(value.isNull(), F.lit("the result is beyond 64 bits")))


def _floor(value: Column) -> Column:
    return F.when(F.abs(value) < F.lit(float(_WHOLE)), F.floor(value).cast("double")).otherwise(value)


def _rounded_down(operands: Sequence[Operand]) -> Answer:
    return Answer(_floor(operands[0].value.cast("double")))


def _rounded_up(operands: Sequence[Operand]) -> Answer:
    return Answer(-_floor(-operands[0].value.cast("double")))


def _rounded(operands: Sequence[Operand]) -> Answer:
    return Answer(F.call_function("glassflow_round", operands[0].value.cast("double")))


def _least(operands: Sequence[Operand]) -> Answer:
    return _extreme(operands, F.least, F.array_min)


def _greatest(operands: Sequence[Operand]) -> Answer:
    return _extreme(operands, F.greatest, F.array_max)


def _extreme(
    operands: Sequence[Operand], of_several: Callable[..., Column], of_list: Callable[[Column], Column]
) -> Answer:
    """Give the least or greatest of several numbers, or of a list's; nil for an empty one."""
    if operands[0].kind in LISTS:
        numbers, problem = _numbers(operands[0])
        return Answer(of_list(numbers), problem, nullable=True)
    values = [operand.value for operand in operands]
    return Answer(of_several(*values) if len(values) > 1 else values[0])


def _numbers(listed: Operand) -> tuple[Column, Column]:
    """Give a list's numbers, ARRAY<BIGINT> or ARRAY<DOUBLE>, and the problem that an element is none."""
    numbers = listed.value
    if listed.kind == "values":
        numbers = F.transform(listed.value, lambda element: variants.scalar(element, "float"))
    wrong = F.exists(numbers, lambda number: number.isNull())
    return numbers, F.when(wrong, F.lit("an element is no number"))


def _sum(operands: Sequence[Operand]) -> Answer:
    numbers, problem = _numbers(operands[0])
    if operands[0].kind != "ints":
        return Answer(F.aggregate(numbers, F.lit(0.0), lambda total, number: total + number), problem)
    total = F.aggregate(numbers, F.lit(0).cast("bigint"), F.try_add)
    beyond = F.when(total.isNull(), F.lit("the result is beyond 64 bits"))
    return Answer(total, F.coalesce(problem, beyond))


def _mean(operands: Sequence[Operand]) -> Answer:
    numbers, problem = _numbers(operands[0])
    total = F.aggregate(numbers, F.lit(0.0), lambda total, number: total + number.cast("double"))
    return Answer(F.coalesce(F.try_divide(total, F.size(numbers).cast("double")), F.lit(0.0)), problem)


def _median(operands: Sequence[Operand]) -> Answer:
    numbers, problem = _numbers(operands[0])

    def middle(ordered: Column) -> Column:
        size = F.size(ordered)
        upper = F.get(ordered, F.floor(size / F.lit(2)).cast("int")).cast("double")
        lower = F.get(ordered, F.floor((size - F.lit(1)) / F.lit(2)).cast("int")).cast("double")
        # Halved first: the sum may be beyond the greatest float.
        return F.coalesce(lower / F.lit(2.0) + upper / F.lit(2.0), F.lit(0.0))

    return Answer(bound(F.array_sort(numbers), middle), problem)


def _count(operands: Sequence[Operand]) -> Answer:
    truths = operands[0].value
    if operands[0].kind == "values":
        truths = F.transform(truths, lambda element: variants.scalar(element, "bool"))
    if operands[0].kind not in ("values", "bools"):
        return Answer(F.lit(0).cast("bigint"), F.when(F.size(truths) > 0, F.lit("an element is not true or false")))
    wrong = F.exists(truths, lambda truth: truth.isNull())
    counted = F.size(F.filter(truths, lambda truth: truth)).cast("bigint")
    return Answer(counted, F.when(wrong, F.lit("an element is not true or false")))


def _element(operand: Operand, position: Callable[[Column], Column]) -> Answer:
    element = bound(operand.value, lambda listed: F.get(listed, position(listed)))
    return Answer(variants.without_null(element) if operand.kind == "values" else element, nullable=True)


def _first(operands: Sequence[Operand]) -> Answer:
    return _element(operands[0], lambda _: F.lit(0))


def _last(operands: Sequence[Operand]) -> Answer:
    return _element(operands[0], lambda listed: F.size(listed) - F.lit(1))


def _take(operands: Sequence[Operand]) -> Answer:
    listed, number = operands[0].value, operands[1].value.cast("bigint")
    return Answer(
        part_of_list(listed, None, F.greatest(number, F.lit(0).cast("bigint"))),
        F.when(number < 0, F.lit("the number is negative")),
    )


def _reverse(operands: Sequence[Operand]) -> Answer:
    return Answer(F.reverse(operands[0].value))


def _sort(operands: Sequence[Operand]) -> Answer:
    (listed, *order) = operands
    ordered, problem = _sorted_values(listed.value) if listed.kind == "values" else _sorted(listed.value)
    return Answer(F.reverse(ordered) if order and order[0].literal == "desc" else ordered, problem)


def _sorted(listed: Column) -> tuple[Column, Column]:
    nothing = F.exists(listed, lambda element: element.isNull())
    return F.array_sort(listed), F.when(nothing, F.lit("nil has no place in an order"))


def _sorted_values(listed: Column) -> tuple[Column, Column]:
    def by(kind: Kind) -> Callable[[Column, Column], Column]:
        def compare(left: Column, right: Column) -> Column:
            one, other = variants.scalar(left, kind), variants.scalar(right, kind)
            return F.when(one < other, F.lit(-1)).when(one > other, F.lit(1)).otherwise(F.lit(0))

        return compare

    def alike(kind: Kind) -> Column:
        return F.forall(listed, lambda element: variants.scalar(element, kind).isNotNull())

    ordered = F.when(alike("float"), F.array_sort(listed, by("float"))).when(
        alike("string"), F.array_sort(listed, by("string"))
    )
    return ordered, F.when(ordered.isNull(), F.lit("the elements are not all numbers or all texts"))


def _uniq(operands: Sequence[Operand]) -> Answer:
    (listed,) = operands
    if listed.kind != "values":
        return Answer(F.array_distinct(listed.value))

    def add(found: Column, element: Column) -> Column:
        one = variants.without_null(element)
        known = F.exists(found, lambda other: _alike(one, variants.without_null(other)))
        return F.when(known, found).otherwise(F.array_append(found, element))

    many = F.size(listed.value) > _COMPARED
    value = F.aggregate(F.when(~many, listed.value), F.array().cast("array<variant>"), add)
    return Answer(value, F.when(many, F.lit(f"this list has more than {_COMPARED:,} elements")))


def _alike(left: Column, right: Column) -> Column:
    nothing = left.isNull() | right.isNull()
    return F.when(nothing, left.isNull() & right.isNull()).otherwise(variants.same(left, right))


def _flatten(operands: Sequence[Operand]) -> Answer:
    (listed,) = operands
    if listed.kind != "values":
        return Answer(listed.value)
    value = listed.value
    for _ in range(_DEEPEST_LIST):
        value = F.flatten(F.transform(value, lambda inner: F.coalesce(variants.elements(inner), F.array(inner))))
    deeper = F.exists(value, lambda inner: variants.elements(inner).isNotNull())
    return Answer(value, F.when(deeper, F.lit(f"lists are nested deeper than {_DEEPEST_LIST}")))


def _concat(operands: Sequence[Operand]) -> Answer:
    kinds = {operand.kind for operand in operands}
    if len(kinds) == 1:
        return Answer(F.concat(*(operand.value for operand in operands)))
    return Answer(F.concat(*(_as_values(operand) for operand in operands)))


def _as_values(listed: Operand) -> Column:
    if listed.kind == "values":
        return listed.value
    return F.transform(listed.value, lambda element: element.cast("variant"))


def _values(operands: Sequence[Operand]) -> Answer:
    return Answer(F.map_values(operands[0].value), _no_object(operands[0]))


def _to_pairs(operands: Sequence[Operand]) -> Answer:
    pairs = F.transform(
        F.map_entries(operands[0].value),
        lambda entry: F.array(entry["key"].cast("variant"), entry["value"]).cast("variant"),
    )
    return Answer(pairs, _no_object(operands[0]))


def _no_object(operand: Operand) -> Column:
    return F.when(operand.value.isNull(), F.lit("this is no object"))


def _to_json(operands: Sequence[Operand]) -> Answer:
    return Answer(F.to_json(operands[0].value.cast("variant")))


def _from_json(operands: Sequence[Operand]) -> Answer:
    value = F.try_parse_json(operands[0].value)
    return Answer(variants.without_null(value), F.when(value.isNull(), F.lit("this is not JSON")), nullable=True)


def _to_base64(operands: Sequence[Operand]) -> Answer:
    return Answer(F.base64(operands[0].value.cast("binary")))


def _from_base64(operands: Sequence[Operand]) -> Answer:
    value = F.try_validate_utf8(F.try_to_binary(operands[0].value, F.lit("base64")).cast("string"))
    return Answer(value, F.when(value.isNull(), F.lit("this is no text in Base64")))


def _duration(operands: Sequence[Operand]) -> Answer:
    return Answer(F.lit(microseconds(operands[0].literal or "")).cast("bigint"))


def _date(operands: Sequence[Operand]) -> Answer:
    text = operands[0].value
    value = F.when(text.rlike(_DATE), text.try_cast("timestamp"))
    return Answer(value, F.when(value.isNull(), F.lit("this is no time; write 2024-10-28T10:00:05Z or 2024-10-28")))


def _parse_iso_8601(operands: Sequence[Operand]) -> Answer:
    text = operands[0].value
    seconds = F.unix_seconds(F.when(text.rlike(_ISO_8601), text.try_cast("timestamp")))
    return Answer(F.coalesce(seconds, F.lit(0).cast("bigint")))


def _to_date(operands: Sequence[Operand]) -> Answer:
    (operand,) = operands
    if operand.kind == "nil":
        return Answer(F.lit("0"))
    if operand.kind == "time":
        return Answer(F.date_format(operand.value, "yyyy-MM-dd"))
    inside = operand.value.between(F.lit(_SECONDS[0]), F.lit(_SECONDS[1]))
    whole = operand.value if operand.kind != "float" else _floor(operand.value)
    day = F.date_format(F.timestamp_seconds(F.when(inside, whole).cast("bigint")), "yyyy-MM-dd")
    return Answer(
        F.when(operand.value.isNull(), F.lit("0")).otherwise(day),
        F.when(~inside, F.lit("this is no second of the years 1 to 9999")),
    )


def _url_decode(operands: Sequence[Operand]) -> Answer:
    text = operands[0].value
    decoded = F.try_url_decode(text)
    return Answer(
        F.coalesce(decoded, F.lit("")),
        F.when(text.isNotNull() & decoded.isNull(), F.lit("this is not URL-encoded")),
    )


def _query_pairs(query: Column) -> Column:
    """Give the decoded names and values of a URL query in order: ARRAY<STRUCT<name, value>>, NULL for a bad one."""
    parts = F.filter(F.split(query, "&"), lambda part: part != F.lit(""))
    pairs = F.transform(
        parts,
        lambda part: F.struct(
            F.try_url_decode(F.substring_index(part, "=", 1)).alias("name"),
            F.try_url_decode(F.substr(part, F.char_length(F.substring_index(part, "=", 1)) + F.lit(2))).alias("value"),
        ),
    )
    bad = F.exists(pairs, lambda pair: pair["name"].isNull() | pair["value"].isNull())
    # Go refuses semicolons, which once were separators too.
    return F.when(~F.contains(query, F.lit(";")) & ~bad, pairs)


def _parse_query(operands: Sequence[Operand]) -> Answer:
    """Give an object of texts; a name that is repeated has the list of its values."""
    query = operands[0].value
    many = F.size(F.split(query, "&")) > _COMPARED
    pairs = _query_pairs(F.when(~many, query))
    names = F.array_distinct(F.transform(pairs, lambda pair: pair["name"]))

    def entry(name: Column) -> Column:
        values = F.transform(F.filter(pairs, lambda pair: pair["name"] == name), lambda pair: pair["value"])
        listed = F.to_json(values)
        return F.concat(
            _unlisted(F.to_json(F.array(name))),
            F.lit(":"),
            F.when(F.size(values) == 1, _unlisted(listed)).otherwise(listed),
        )

    text = F.concat(F.lit("{"), F.array_join(F.transform(names, entry), ","), F.lit("}"))
    problem = F.when(many, F.lit(f"this query has more than {_COMPARED:,} parameters"))
    return Answer(F.try_parse_json(F.coalesce(text, F.lit("{}"))), problem)


def _unlisted(json_list: Column) -> Column:
    """Take the brackets from a JSON list of one."""
    return F.substring(json_list, F.lit(2), F.char_length(json_list) - F.lit(2))


def _query_param(operands: Sequence[Operand]) -> Answer:
    query, name = (operand.value for operand in operands)
    found = F.filter(_query_pairs(query), lambda pair: pair["name"] == name)
    return Answer(F.coalesce(F.get(found, F.lit(0))["value"], F.lit("")))


def _contains_any(text: Column, *parts: str) -> Column:
    found = F.contains(text, F.lit(parts[0]))
    for part in parts[1:]:
        found |= F.contains(text, F.lit(part))
    return found


def _device(agent: Column) -> Column:
    tablet = _contains_any(agent, "ipad") | (_contains_any(agent, "android") & ~_contains_any(agent, "mobile"))
    mobile = _contains_any(agent, "mobile", "iphone", "android")
    return F.when(tablet, F.lit("Tablet")).when(mobile, F.lit("Mobile")).otherwise(F.lit("Desktop"))


def _browser(agent: Column) -> Column:
    return (
        F.when(_contains_any(agent, "edg/"), F.lit("Edge"))
        .when(_contains_any(agent, "chrome", "crios"), F.lit("Chrome"))
        .when(_contains_any(agent, "firefox", "fxios"), F.lit("Firefox"))
        .when(_contains_any(agent, "safari"), F.lit("Safari"))
        .otherwise(F.lit("Unknown"))
    )


def _system(agent: Column) -> Column:
    return (
        F.when(_contains_any(agent, "iphone", "ipad", "ipod"), F.lit("iOS"))
        .when(_contains_any(agent, "android"), F.lit("Android"))
        .when(_contains_any(agent, "windows"), F.lit("Windows"))
        .when(_contains_any(agent, "macintosh", "mac os"), F.lit("macOS"))
        .when(_contains_any(agent, "linux"), F.lit("Linux"))
        .otherwise(F.lit("Unknown"))
    )


_AGENT_PARTS = {"device": _device, "browser": _browser, "os": _system}


def _parse_user_agent(operands: Sequence[Operand]) -> Answer:
    part = _AGENT_PARTS.get(operands[1].literal or "")
    if part is None:
        return Answer(F.lit(""))
    agent = _lower(operands[0].value)
    return Answer(F.when(agent != F.lit(""), part(agent)).otherwise(F.lit("")))


def _waterfall(operands: Sequence[Operand]) -> Answer:
    if operands[0].kind in LISTS:
        inner = LISTS[operands[0].kind]
        listed = F.transform(operands[0].value, lambda element: text_of(Operand(element, inner)))
        found = F.filter(listed, lambda text: text != F.lit(""))
        return Answer(F.coalesce(F.get(found, F.lit(0)), F.lit("")))
    texts = [text_of(operand) for operand in operands]
    return Answer(F.coalesce(*(F.when(text != F.lit(""), text) for text in texts), F.lit("")))


def _extract_path_type(operands: Sequence[Operand]) -> Answer:
    path = operands[0].value
    return Answer(
        F.when(_contains_any(path, "/g/collect"), F.lit("collect"))
        .when(_contains_any(path, "/_/set_cookie"), F.lit("set_cookie"))
        .otherwise(F.lit("unknown"))
    )


def _has_key_prefix(operands: Sequence[Operand]) -> Answer:
    entries, prefixes = (operand.value for operand in operands)
    found = F.exists(F.map_keys(entries), lambda key: F.exists(prefixes, lambda prefix: F.startswith(key, prefix)))
    return Answer(_or_false(found))


def _has_any_key(operands: Sequence[Operand]) -> Answer:
    entries, names = (operand.value for operand in operands)
    return Answer(_or_false(F.arrays_overlap(F.map_keys(entries), names)))


def _keys(operands: Sequence[Operand]) -> Answer:
    keys = F.array_sort(F.map_keys(operands[0].value))
    return Answer(F.coalesce(keys, F.array().cast("array<string>")))


def _or_false(value: Column) -> Column:
    return F.coalesce(value, F.lit(0).cast("boolean"))


def _plain(function: Callable[..., Column]) -> Builder:
    """Make a builder of a Spark function of the same operands."""
    return lambda operands: Answer(function(*(operand.value for operand in operands)))


def _defaulting(builder: Builder, default: str | bool) -> Builder:
    """Make a helper of a builder: its default where an operand is NULL."""
    return lambda operands: Answer(F.coalesce(builder(operands).value, F.lit(default)))


BUILTIN_BUILDERS: Mapping[str, Builder] = {
    "len": _len,
    "lower": _plain(_lower),
    "upper": _plain(_upper),
    "trim": _trim,
    "trimPrefix": _trim_prefix,
    "trimSuffix": _trim_suffix,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "repeat": _repeat,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "hasPrefix": _plain(F.startswith),
    "hasSuffix": _plain(F.endswith),
    "int": _int,
    "float": _float,
    "string": _string,
    "abs": _abs,
    "floor": _rounded_down,
    "ceil": _rounded_up,
    "round": _rounded,
    "min": _least,
    "max": _greatest,
    "sum": _sum,
    "mean": _mean,
    "median": _median,
    "count": _count,
    "first": _first,
    "last": _last,
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
    "toString": _defaulting(_string, ""),
    "upper": _defaulting(_plain(_upper), ""),
    "lower": _defaulting(_plain(_lower), ""),
    "trim": _defaulting(_trim, ""),
    "containsStr": _defaulting(_plain(F.contains), default=False),
    "hasPrefix": _defaulting(_plain(F.startswith), default=False),
    "hasSuffix": _defaulting(_plain(F.endswith), default=False),
    "split": _split_helper,
    "join": _defaulting(_join, ""),
    "replace": _defaulting(_replace, ""),
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
