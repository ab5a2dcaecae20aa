"""Every column type through the whole pipeline: random values are read back unchanged, hostile ones are rejected."""

import json
import random
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from tests.e2e.support import Pipeline

EVENTS = 300
SEED = 20260704

# A value in the event (a number may be a JSON string), and the text of ClickHouse's toString.
Pair = tuple[Any, str | None]
Draw = Callable[[random.Random], Pair]


class Digits(str):
    """A JSON number with exactly these digits."""

    __slots__ = ()


def dumped(value: Any) -> str:
    """Return JSON text with Digits as numbers."""
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {dumped(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dumped(item) for item in value) + "]"
    return json.dumps(value)


def integer(bits: int, *, signed: bool) -> Draw:
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def draw(chance: random.Random) -> Pair:
        size = chance.choice([bits, bits // 2, 8])
        value = chance.choice([least, greatest, 0, chance.randint(max(least, -(2**size)), min(greatest, 2**size))])
        return value, str(value)

    return draw


def decimal(precision: int, scale: int) -> Draw:
    def draw(chance: random.Random) -> Pair:
        with localcontext(prec=100):
            largest = 10 ** chance.choice([precision, precision // 2 + 1, 1]) - 1
            value = Decimal(chance.choice([largest, -largest, chance.randint(-largest, largest)])).scaleb(-scale)
            text = f"{value:f}"
        shown = text.rstrip("0").rstrip(".") if "." in text else text
        return Digits(chance.choice([text, shown if shown != "-0" else "0"])), "0" if shown == "-0" else shown

    return draw


def text(chance: random.Random) -> Pair:
    alphabet = "ab \t\n\"'\\/{}[],:\u00e4\u00df\u20ac\U0001f600\u0000"
    value = "".join(chance.choices(alphabet, k=chance.randint(0, 12)))
    return value, value


def float64(chance: random.Random) -> Pair:
    value = chance.choice([chance.uniform(-1, 1), chance.uniform(-1e300, 1e300), chance.gauss(0, 1e-300), 0.5, 5e-324])
    return value, repr(value)


def float32(chance: random.Random) -> Pair:
    value = chance.randint(-(2**24), 2**24) * 2.0 ** chance.randint(-100, 100)
    return value, repr(value)


def day(first: str, last: str) -> Draw:
    start = date.fromisoformat(first)
    days = (date.fromisoformat(last) - start).days

    def draw(chance: random.Random) -> Pair:
        value = (start + timedelta(days=chance.choice([0, days, chance.randint(0, days)]))).isoformat()
        return value, value

    return draw


def time(first: int, last: int, digits: int) -> Draw:
    def draw(chance: random.Random) -> Pair:
        seconds, fraction = chance.choice([first, last, chance.randint(first, last)]), chance.randrange(10**digits)
        told = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
        shown = f"{told}.{fraction:0{digits}d}" if digits else told
        return shown.replace(" ", chance.choice(["T", " "])) + chance.choice(["", "Z", "+00:00"]), shown

    return draw


def one_of(*values: str) -> Draw:
    def draw(chance: random.Random) -> Pair:
        value = chance.choice(values)
        return value, value

    return draw


def ip(kind: type[IPv4Address | IPv6Address], bits: int) -> Draw:
    def draw(chance: random.Random) -> Pair:
        # Above the range that ClickHouse prints as an embedded IPv4 address.
        value = str(kind(chance.choice([2**bits - 1, chance.randint(2 ** (bits - 8), 2**bits - 1)])))
        return value, value

    return draw


def identifier(chance: random.Random) -> Pair:
    value = str(uuid.UUID(int=chance.getrandbits(128)))
    return chance.choice([value, value.upper()]), value


def truth(chance: random.Random) -> Pair:
    value = chance.random() < 0.5
    return value, str(value).lower()


def nullable(of: Draw) -> Draw:
    return lambda chance: (None, None) if chance.random() < 0.2 else of(chance)


# Column -> declared type, column type, generator of values.
SCALARS: dict[str, tuple[str, str, Draw]] = {
    **{f"i{b}": ("int", f"Int{b}", integer(b, signed=True)) for b in (8, 16, 32, 64)},
    **{f"u{b}": ("uint", f"UInt{b}", integer(b, signed=False)) for b in (8, 16, 32, 64)},
    **{f"i{b}": (f"int{b}", f"Int{b}", integer(b, signed=True)) for b in (128, 256)},
    **{f"u{b}": (f"uint{b}", f"UInt{b}", integer(b, signed=False)) for b in (128, 256)},
    "d9": ("decimal", "Decimal32(4)", decimal(9, 4)),
    "d38": ("decimal", "Decimal(38, 20)", decimal(38, 20)),
    "d76": ("decimal", "Nullable(Decimal256(38))", nullable(decimal(76, 38))),
    "f32": ("float", "Float32", float32),
    "f64": ("float", "Float64", float64),
    "b": ("bool", "Nullable(Bool)", nullable(truth)),
    "s": ("string", "String", text),
    "ls": ("string", "LowCardinality(Nullable(String))", nullable(text)),
    "fs": ("string", "FixedString(4)", one_of("abcd", "\u20ac1", "\u00e4\u00f6")),
    "id": ("string", "UUID", identifier),
    "e": ("string", "Enum8('a' = -128, 'it\\'s' = 127)", one_of("a", "it's")),
    "le": ("string", "Nullable(Enum16('a' = 1, '' = 30000))", nullable(one_of("a", ""))),
    "v4": ("string", "IPv4", ip(IPv4Address, 32)),
    "v6": ("string", "Nullable(IPv6)", nullable(ip(IPv6Address, 128))),
    "dt": ("string", "Date", day("1970-01-01", "2149-06-06")),
    "dt32": ("string", "Nullable(Date32)", nullable(day("1900-01-01", "2299-12-31"))),
    "t": ("string", "DateTime('UTC')", time(0, 2**32 - 1, 0)),
    "t3": ("string", "DateTime64(3, 'UTC')", time(-2208988800, 10413791999, 3)),
    "t6": ("string", "Nullable(DateTime64(6, 'UTC'))", nullable(time(-2208988800, 10413791999, 6))),
    "t7": ("string", "DateTime64(7, 'UTC')", time(-2208988800, 10413791999, 7)),
    "saf": ("uint", "SimpleAggregateFunction(sum, UInt64)", integer(64, signed=False)),
    "t9": ("string", "DateTime64(9, 'UTC')", time(-2208988800, 9223372035, 9)),
}

# Column -> declared type, column type, generator: values as sent, and as toJSONString prints them, numbers as texts.
NESTED: dict[str, tuple[str, str, Callable[[random.Random], tuple[Any, Any]]]] = {}


def nested(name: str, declared: str, column: str) -> Callable[[Callable[[random.Random], tuple[Any, Any]]], None]:
    def keep(draw: Callable[[random.Random], tuple[Any, Any]]) -> None:
        NESTED[name] = (declared, column, draw)

    return keep


def several(chance: random.Random, draw: Callable[[random.Random], tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    pairs = [draw(chance) for _ in range(chance.randint(0, 4))]
    return [sent for sent, _ in pairs], [back for _, back in pairs]


def keyed(chance: random.Random, draw: Callable[[random.Random], tuple[Any, Any]]) -> tuple[Any, Any]:
    sent, back = several(chance, draw)
    return dict(zip("wxyz", sent, strict=False)), dict(zip("wxyz", back, strict=False))


# Each scalar type in an array, with null elements where the type allows them.
for _name, (_, _column, _draw) in SCALARS.items():
    _inner = _column if "Nullable" in _column else f"Nullable({_column})"
    nested(f"a_{_name}", "array", f"Array({_inner})")(lambda chance, draw=_draw: several(chance, nullable(draw)))
    nested(f"m_{_name}", "map", f"Map(String, {_column})")(lambda chance, draw=_draw: keyed(chance, draw))


@nested("deep", "array", "Array(Map(String, Array(Tuple(n Nullable(UInt64), `a b` Array(Decimal(50, 2))))))")
def _deep(chance: random.Random) -> tuple[Any, Any]:
    def element(chance: random.Random) -> tuple[Any, Any]:
        n, shown = nullable(integer(64, signed=False))(chance)
        numbers, told = several(chance, decimal(50, 2))
        return {"n": n, "a b": numbers, "other": 1}, {"n": shown, "a b": told}

    return several(chance, lambda c: keyed(c, lambda d: several(d, element)))


@nested("tuple", "array", "Tuple(Int8, Map(String, String), Tuple(x UUID, y Nullable(Date)))")
def _tuple(chance: random.Random) -> tuple[Any, Any]:
    number, shown = integer(8, signed=True)(chance)
    sent = {"a": None, "b": 5, "c": Digits("2.50"), "d": True, "e": [1, {"x": None}], "f": "ä", "g": Digits("1e21")}
    back = {"a": "", "b": "5", "c": "2.5", "d": "true", "e": '[1, {"x": null}]', "f": "ä", "g": "1e+21"}
    (x, told), (y, when) = identifier(chance), nullable(day("1970-01-01", "2149-06-06"))(chance)
    return [number, sent, {"x": x, "y": y}], [shown, back, {"x": told, "y": when}]


@nested("nest", "array", "Nested(n Nullable(Int8), s String)")
def _nest(chance: random.Random) -> tuple[Any, Any]:
    def element(chance: random.Random) -> tuple[Any, Any]:
        (n, shown), (s, told) = nullable(integer(8, signed=True))(chance), text(chance)
        return {"s": s, "n": n}, {"n": shown, "s": told}

    return several(chance, element)


@nested("mapped", "map", "Map(UInt64, Map(Date, Array(IPv4)))")
def _mapped(chance: random.Random) -> tuple[Any, Any]:
    sent, back = several(chance, ip(IPv4Address, 32))
    return {str(2**64 - 1): {"2024-02-29": sent}}, {str(2**64 - 1): {"2024-02-29": back}}


@nested("j", "map", "JSON(max_dynamic_paths = 8, typed UInt8)")
def _json(chance: random.Random) -> tuple[Any, Any]:
    value = {"typed": chance.randint(0, 255), "a": {"b": [1, "x", {"c": chance.randint(0, 2**64 - 1)}], "t": True}}
    return value, {"typed": str(value["typed"]), "a": json.loads(json.dumps(value["a"]), parse_int=str)}


# An invalid field value, the stage that rejects it, and words of the reason.
HOSTILE: list[tuple[dict[str, Any], str, str]] = [
    ({"i8": 128}, "mapping", "column 'i8' (Int8): 128 is out of range -128..127"),
    ({"i64": 3.7}, "decode", "field 'i64': expected int, got 3.7"),
    ({"u256": -1}, "decode", "field 'u256': expected uint128 or uint256, got -1"),
    ({"d9": Digits("1.23456")}, "mapping", "column 'd9' (Decimal(9, 4)): 1.23456 has more than 4 digits"),
    ({"d9": Digits("1e99999999999")}, "decode", "field 'd9': 1e99999999999 has more than 76 digits"),
    ({"s": None}, "decode", "field 's' is null"),
    ({"s": Digits('"\\ud800"')}, "decode", "field 's': holds half a surrogate pair"),
    ({"fs": "abcde"}, "mapping", "column 'fs' (FixedString(4)): 'abcde' is too long"),
    ({"e": "b"}, "mapping", "'b' is not one of a, it's"),
    ({"v6": "localhost"}, "mapping", "'localhost' is not an IPv6 address"),
    ({"dt": "2149-06-07"}, "mapping", "'2149-06-07' is not a date"),
    ({"t9": "2262-04-11T23:47:17Z"}, "mapping", "is not a time that DateTime64(9, 'UTC') holds"),
    ({"a_i64": Digits("[" * 900 + "]" * 900)}, "mapping", "[0]: expected a whole number, got array"),
    ({"a_i64": Digits("[" * 2000 + "]" * 2000)}, "decode", "invalid JSON: arrays and objects more than 1000 deep"),
    ({"a_f64": [Digits("1e400")]}, "mapping", "[0]: 1e400 is out of range of Float64"),
    ({"a_u8": [1, -1]}, "mapping", "[1]: -1 is out of range 0..255"),
    ({"m_i8": {"x": None}}, "mapping", "x: null, but Int8 is not Nullable"),
    ({"m_s": Digits('{"a":1,"a":2}')}, "mapping", "a: is given twice"),
    ({"deep": [{"k": [{"a b": [Digits("0.001")]}]}]}, "mapping", "[0].k[0].a b[0]: 0.001 has more than 2 digits"),
    ({"j": Digits('{"a":{"b":1},"a.b":2}')}, "mapping", "a.b: is given twice"),
    ({"j": {"typed": 256}}, "mapping", "typed: 256 is out of range 0..255"),
]  # fmt: skip


def booleans_as_text(value: Any) -> Any:
    """Return a value with true and false as texts, as toString prints them."""
    if isinstance(value, dict):
        return {name: booleans_as_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [booleans_as_text(item) for item in value]
    # The server pads a FixedString with zero bytes.
    return str(value).lower() if isinstance(value, bool) else value.rstrip("\0") if isinstance(value, str) else value


def floats(value: Any, size: str) -> Any:
    """Return a value with its texts as floats of a struct format, `f` or `d`."""
    if isinstance(value, dict):
        return {name: floats(item, size) for name, item in value.items()}
    if isinstance(value, list):
        return [floats(item, size) for item in value]
    return None if value is None else struct.pack(size, float(value))


def comparable(value: Any, column: str) -> Any:
    if "Float" in column:
        return floats(value, "f" if "Float32" in column else "d")
    return booleans_as_text(value)


def test_random_values_of_every_type_come_back_equal_and_hostile_ones_are_dead_letters(pipeline: Pipeline) -> None:
    chance = random.Random(SEED)
    columns = {**SCALARS, **NESTED}
    pipeline.fields = [{"name": "key", "type": "int"}] + [
        {"name": name, "type": declared, "required": not column.startswith(("Nullable", "LowCardinality(Nullable"))}
        for name, (declared, column, _) in columns.items()
    ]
    pipeline.columns = {"key": "UInt32", **{name: column for name, (_, column, _) in columns.items()}}
    pipeline.keys = ["key"]
    pipeline.write().create_topic()
    drawn = [{name: draw(chance) for name, (_, _, draw) in columns.items()} for _ in range(EVENTS)]
    events = [dumped({"key": i} | {n: sent for n, (sent, _) in row.items()}).encode() for i, row in enumerate(drawn)]
    good = json.loads(events[0], parse_int=Digits, parse_float=Digits)
    hostile = [dumped({**good, "key": EVENTS + i, **change}).encode() for i, (change, *_) in enumerate(HOSTILE)]
    pipeline.send([*events, *hostile], lambda index: index % 2)

    totals = pipeline.catch_up()

    dead_letters = pipeline.query(
        f"SELECT offset * 2 + partition - {EVENTS} AS i, stage, reason FROM {{db}}.glassflow_dead_letters ORDER BY i"
    )
    assert [i for i, _, _ in dead_letters] == list(range(len(HOSTILE))), dead_letters[:3]
    for (_, stage, reason), (change, expected_stage, expected) in zip(dead_letters, HOSTILE, strict=True):
        assert (stage, expected in reason) == (expected_stage, True), (str(change)[:80], reason)
    assert (totals["written"], totals["dead_letters"], totals["duplicates"]) == (EVENTS, len(HOSTILE), 0)
    for name, (_, column, _) in columns.items():
        shown = "toJSONString" if name in NESTED else "toString"
        rows = pipeline.query(
            f"SELECT key, {shown}(`{name}`) FROM {{db}}.events ORDER BY key "
            "SETTINGS output_format_json_quote_decimals = 1"
        )
        assert [key for key, _ in rows] == list(range(EVENTS))
        for key, text in rows:
            found = json.loads(text, parse_int=str, parse_float=str) if name in NESTED else text
            sent, back = drawn[key][name]
            assert comparable(found, column) == comparable(back, column), (name, column, sent, text)
