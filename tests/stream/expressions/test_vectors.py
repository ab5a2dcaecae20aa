"""Results of expressions according to GlassFlow's documentation, code and tests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.expressions.check import check_filter, check_transform
from glassflow_dagster.definition.expressions.signatures import BUILTINS, HELPERS, PREDICATES, UNSUPPORTED
from glassflow_dagster.definition.model.types import FieldKind
from tests.stream.expressions.evaluation import Case, Result, evaluate

FIELDS: dict[str, FieldKind] = {
    "name": "string",
    "status": "string",
    "email": "string",
    "age": "int",
    "count": "uint",
    "price": "float",
    "is_active": "bool",
    "is_student": "bool",
    "tags": "array",
    "items": "array",
    "user": "map",
    "company": "map",
    "hub.code": "string",
    # A line of a web server's log, which is defined below.
    "uri": "string",
    "args": "string",
    "agent": "string",
    "received": "string",
    "took": "string",
}

FILTERS: list[tuple[str, dict[str, Any], bool]] = [
    ('name == "John"', {"name": "John"}, True),
    ('name == "John"', {"name": "Jane"}, False),
    ("age > 18", {"age": 25}, True),
    ("age > 18", {"age": 18}, False),
    ("is_active == true", {"is_active": True}, True),
    ('age > 18 and name == "John"', {"age": 25, "name": "John"}, True),
    ('age > 18 and name == "John"', {"age": 25, "name": "Jane"}, False),
    ('age > 18 or name == "John"', {"age": 10, "name": "John"}, True),
    ('age > 18 && !(name == "John") || false', {"age": 25, "name": "Jane"}, True),
    ("price >= 100.5", {"price": 100.5}, True),
    ("(age > 18 and age < 65) or is_student == true", {"age": 70, "is_student": True}, True),
    ("user.age > 18", {"user": {"age": 25}}, True),
    ('company.department.manager == "Alice"', {"company": {"department": {"manager": "Alice"}}}, True),
    ("tags[0] == 1", {"tags": [1, 2]}, True),
    ('tags[0] == "1"', {"tags": [1, 2]}, False),
    ("tags[-1] == 2", {"tags": [1, 2]}, True),
    ("true", {}, True),
    ("false", {}, False),
    ("name == nil", {"name": None}, True),
    ("name == nil", {"name": "John"}, False),
    ('name != "John"', {"name": "Jane"}, True),
    ('name != "John"', {"name": None}, True),
    ("age <= 18", {"age": 18}, True),
    ('status in ["active","pending"]', {"status": "active"}, True),
    ('status in ["active","pending"]', {"status": None}, False),
    ('status not in ["active","pending"]', {"status": "deleted"}, True),
    ("age in [1, 2.5, nil]", {"age": None}, True),
    ("2 in tags", {"tags": [1, 2]}, True),
    ('"2" in tags', {"tags": [1, 2]}, False),
    ('"age" in user', {"user": {"age": 1}}, True),
    ("user.email == nil", {"user": {"age": 1}}, True),
    ("user.email == nil", {"user": {"email": None}}, True),
    ('user["e.mail"] == "x"', {"user": {"e.mail": "x"}}, True),
    ("user?.email == nil", {"user": None}, True),
    ("age > 18 and email == nil", {"age": 20}, True),
    ("age != nil and age > 18", {"age": None}, False),
    ('name matches "^J.*n$"', {"name": "John"}, True),
    ('name contains "oh"', {"name": "John"}, True),
    ('name not contains "oh"', {"name": "John"}, False),
    ('name startsWith "Jo"', {"name": "John"}, True),
    ('name endsWith "hn"', {"name": "John"}, True),
    ('hub.code == "FRA"', {"hub.code": "FRA"}, True),
    ("count > age", {"count": 2**64 - 1, "age": 2**63 - 1}, True),
    ('date(name) < date("2024-10-28T10:00:05Z")', {"name": "2024-10-28"}, True),
    ('age > 18 ? is_active : name == "x"', {"age": 1, "name": "x"}, True),
    ('(name ?? "none") == "none"', {"name": None}, True),
    ('lower(name) == "john"', {"name": "JOHN"}, True),
    # In GlassFlow only transformations may call these helpers; here filters may, too.
    ('getQueryParam(name, "a") == "1" and toInt(status) > 200', {"name": "a=1", "status": "404"}, True),
    ('parseUserAgent(name, "device") != "Mobile" or containsStr(status, "x")', {"name": "curl"}, True),
    ('hasAnyKey(user, ["vip"]) and waterfall(email, status) == "s"', {"user": {"vip": 0}, "status": "s"}, True),
    ('toDate(parseISO8601(status)) == "2024-10-20"', {"status": "2024-10-20T08:05:44Z"}, True),
    ('"b" in keys(parseQuery(name)) and urlDecode(status) == "a b"', {"name": "a=1&b=2", "status": "a%20b"}, True),
    # Predicates.
    ('any(tags, # == "x")', {"tags": ["y", "x"]}, True),
    ("any(tags, # > 2)", {"tags": [1, 3, "x"]}, True),
    ("any(tags, true)", {"tags": []}, False),
    (
        "all(items, .price > 1 and .name != nil)",
        {"items": [{"price": 2, "name": "a"}, {"price": 1.5, "name": ""}]},
        True,
    ),
    ("all(items, {.price > 1})", {"items": [{"price": 2}, {"price": 1}, {"price": None}]}, False),
    ("all(items, false)", {"items": []}, True),
    ("none(items, .price > 5)", {"items": [{"price": 2}, {"price": 1}]}, True),
    ("one(items, .price > 1)", {"items": [{"price": 2}, {"price": 1}]}, True),
    ("one(tags, # == 1)", {"tags": [1, 1.0]}, False),
    ("count(tags, # == 1) == 2", {"tags": [1, 1.0, "1"]}, True),
    ("len(filter(tags, # not in [1, 2])) == 1", {"tags": [1, 2, 3]}, True),
    ("any(items, any(.list, # == age))", {"items": [{"list": [1]}, {"list": [5, 2]}], "age": 2}, True),
    ('any(split(name, ","), # matches "^b")', {"name": "a,bc"}, True),
    ("age in 1..5 and age not in 3..4", {"age": 5}, True),
    ("price in 1..3", {"price": 2.0}, True),
    ("price in 1..3", {"price": 2.5}, False),
    ("age in 1..5", {}, False),
    ('"x" in user.tags and "k" in user.more', {"user": {"tags": ["x"], "more": {"k": None}}}, True),
    ('"x" in user.tags', {"user": {}}, False),
    ("name[:2] == name[-2:]", {"name": "éaéa"}, True),
    ("[1, 2] == 1..2 and [1.5] != [2.5] and tags[1:] != nil", {"tags": []}, True),
    ("user?.a.b == nil", {"user": None}, True),
    ("user.a?.b.c[0].d == nil", {"user": {"a": None}}, True),
    ('let n = lower(name); n == "john" or n == "jane"', {"name": "JANE"}, True),
    ("now() > date(name)", {"name": "2024-10-19"}, True),
    ('now() - date(name) < duration("30m")', {"name": "2024-10-20T08:00:00Z"}, True),
    ('date(name) + duration("10m") < now() - duration("0")', {"name": "2024-10-20T08:00:00Z"}, False),
    ("len(tags) == 2 and len(name) == 4", {"tags": [1, 2], "name": "Jöhn"}, True),
]

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Version/14.0 Mobile/15E148 Safari/604.1"
IPAD = "Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36"
EDGE = f"{WINDOWS} Edg/120.0.0.0"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/14.1 Safari/605.1.15"
ANDROID = "Mozilla/5.0 (Linux; Android 11; Pixel 5) AppleWebKit/537.36 Chrome/120.0 Mobile Safari/537.36"

# The helpers, and the corresponding functions of expr.
TRANSFORMS: list[tuple[str, dict[str, Any], Any]] = [
    ("toString(123)", {}, "123"),
    ("toString(age)", {"age": 123}, "123"),
    ("toString(user.id)", {"user": {"id": 123}}, "123"),
    ("toString(price)", {"price": 4.0}, "4"),
    ("toString(price)", {"price": 0.1}, "0.1"),
    ("toString(price)", {"price": 1e21}, "1e+21"),
    ("toString(price)", {"price": 12345678901.25}, "12345678901.25"),
    ("toString(price)", {"price": 0.00001}, "1e-05"),
    ("toString(price)", {"price": 100.0}, "100"),
    ('containsStr("hello world","world")', {}, True),
    ('containsStr(name,"world")', {}, False),
    ('hasPrefix("hello", "he")', {}, True),
    ('hasSuffix("hello", "lo")', {}, True),
    ("upper(name)", {"name": "abc"}, "ABC"),
    ("upper(name)", {}, ""),
    ("lower(name)", {"name": "ABC"}, "abc"),
    ("trim(name)", {"name": " \tx\u3000\n"}, "x"),
    ('split("a,b,c",",")', {}, ["a", "b", "c"]),
    ('split(name,".")', {"name": "a.b."}, ["a", "b", ""]),
    ('split(name,"")', {"name": "abc"}, ["a", "b", "c"]),
    ('split(name,"\\\\E|")', {"name": "a\\E|b"}, ["a", "b"]),
    ('join(["a","b","c"],",")', {}, "a,b,c"),
    ('join(split("a,b,c", ","),"-")', {}, "a-b-c"),
    ('join(tags,"-")', {"tags": ["a", 1]}, "a-1"),
    ('replace("hello world", "world", "universe")', {}, "hello universe"),
    ('toInt("123")', {}, 123),
    ('toInt("abc")', {}, 0),
    ('toInt("4.2")', {}, 4),
    ("toInt(name)", {}, 0),
    ("toInt(name)", {"name": "-4.2"}, -5),
    ("toInt(name)", {"name": "12\n"}, 0),
    ("toInt(user.n)", {"user": {"n": "7"}}, 7),
    ('toFloat("123.45")', {}, 123.45),
    ('toFloat("abc")', {}, 0.0),
    ('toFloat("4")', {}, 4.0),
    ("toDate(1729411544)", {}, "2024-10-20"),
    ("toDate(age)", {}, "0"),
    ('toDate(parseISO8601("2024-10-20 08:25:44.068833"))', {}, "2024-10-20"),
    ('parseISO8601("2024-10-20T08:05:44Z")', {}, 1729411544),
    ('parseISO8601("2024-10-20T10:05:44.5+02:00")', {}, 1729411544),
    ('parseISO8601("yesterday")', {}, 0),
    ("parseISO8601(name)", {}, 0),
    ('parseUserAgent(name, "device")', {"name": IPHONE}, "Mobile"),
    ('parseUserAgent(name, "os")', {"name": IPHONE}, "iOS"),
    ('parseUserAgent(name, "device")', {"name": IPAD}, "Tablet"),
    ('parseUserAgent(name, "device")', {"name": WINDOWS}, "Desktop"),
    ('parseUserAgent(name, "os")', {"name": WINDOWS}, "Windows"),
    ('parseUserAgent(name, "browser")', {"name": WINDOWS}, "Chrome"),
    ('parseUserAgent(name, "browser")', {"name": FIREFOX}, "Firefox"),
    ('parseUserAgent(name, "os")', {"name": FIREFOX}, "Linux"),
    ('parseUserAgent(name, "browser")', {"name": MAC}, "Safari"),
    ('parseUserAgent(name, "os")', {"name": MAC}, "macOS"),
    ('parseUserAgent(name, "browser")', {"name": EDGE}, "Edge"),
    ('parseUserAgent(name, "os")', {"name": ANDROID}, "Android"),
    ('parseUserAgent(name, "browser")', {"name": "curl"}, "Unknown"),
    ('parseUserAgent(name, "browser")', {"name": ""}, ""),
    ('parseUserAgent(name, "planet")', {"name": "curl"}, ""),
    ('keys(parseQuery("a=1&b=2&c=3"))', {}, ["a", "b", "c"]),
    ('parseQuery("a=1&b=2")["a"]', {}, "1"),
    ('parseQuery("a=1&a=2").a', {}, ["1", "2"]),
    ('parseQuery("a=%zz")', {}, {}),
    ("parseQuery(name)", {}, {}),
    ('parseQuery("ep.event_id=123&ep.value=99.99")["ep.event_id"]', {}, "123"),
    ('parseQuery(name)["name"]', {"name": "name=John%20Doe&email=test%40example.com"}, "John Doe"),
    ('parseQuery(name)["email"]', {"name": "name=John%20Doe&email=test%40example.com"}, "test@example.com"),
    ('parseQuery(name)["q"]', {"name": 'q="x\\'}, '"x\\'),
    ('getQueryParam(name, "ep.value")', {"name": "ep.event_id=123&ep.value=99.99"}, "99.99"),
    ('getNestedParam(name, "no")', {"name": "a=1"}, ""),
    ('getNestedParam(name, "a")', {}, ""),
    ('urlDecode("a%20b+c")', {}, "a b c"),
    ("urlDecode(user.n)", {"user": {"n": 1}}, ""),
    ("len(items)", {"items": [1, 2, 3]}, 3),
    ('hasSuffix(name,".png") || hasSuffix(name,".jpg") ? 1 : 0', {"name": "a.jpg"}, 1),
    ("toInt(ceil(4.2))", {}, 5),
    ("toInt(floor(4.7))", {}, 4),
    ("toInt(round(4.5))", {}, 5),
    ("waterfall(name, age, email)", {"name": "", "age": 7}, "7"),
    ('waterfall([name, email, "last"])', {}, "last"),
    ("waterfall(name, email)", {}, ""),
    ('extractPathType("/g/collect")', {}, "collect"),
    ('extractPathType("/_/set_cookie")', {}, "set_cookie"),
    ('extractPathType("/")', {}, "unknown"),
    ("extractPathType(name)", {}, "unknown"),
    ('hasKeyPrefix(user, ["ecom", "x"])', {"user": {"ecommerce": 1}}, True),
    ('hasKeyPrefix(parseQuery(name), ["x"])', {"name": "a=1"}, False),
    ('hasAnyKey(user, ["a", "b"])', {"user": {"b": None}}, True),
    ('hasAnyKey(user, ["a", "b"])', {}, False),
    ("user.a.b", {"user": {"a": {"b": [1, None]}}}, [1, None]),
    ("name", {}, None),
    ("user", {"user": {"a": 1}}, {"a": 1}),
    ("user.a.b.c.d.e.f.g.h", {"user": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": "x"}}}}}}}}}, "x"),
    ("user.a?.b?.c", {"user": {"a": None}}, None),
    ("tags[0][1]?.[0].x", {"tags": [[0, [{"x": "y"}]]]}, "y"),
    ("1 + 2 * 3 - 4 % 3", {}, 6),
    ("7 / 2", {}, 3.5),
    ("-7 % 3", {}, -1),
    ("2 ** 3 ** 2", {}, 512.0),
    ("-2 ** 2", {}, -4.0),
    ('"a" + name', {"name": "b"}, "ab"),
    ("floor(price)", {"price": -1e300}, -1e300),
    ("toInt(price)", {"price": 1e300}, 0),
    ("toInt(price)", {"price": -2.5}, -3),
    ("toInt(price)", {"price": 2.0**53 - 1}, 2**53 - 1),
    ("toInt(price)", {"price": 9007199254740994.0}, 9007199254740994),
    ("toInt(price)", {"price": 1e18}, 10**18),
    ("toInt(price)", {"price": None}, 0),
    ("toInt(name)", {"name": "+9223372036854775807"}, 2**63 - 1),
    ("toInt(name)", {"name": "+"}, 0),
    ("toInt(name)", {"name": "\u0663"}, 0),
    ("toInt(name)", {"name": " 1"}, 0),
    ("round(price)", {"price": -2.5}, -3.0),
    ("round(price)", {"price": 0.49999999999999994}, 0.0),
    ("round(price)", {"price": 4503599627370497.5}, 4503599627370498.0),
    ("toString(price)", {"price": -0.0}, "0"),
    ("toString(price)", {"price": 1200.0}, "1200"),
    ("toString(price)", {"price": 0.0001}, "0.0001"),
    ("toString(price)", {"price": 0.00009}, "9e-05"),
    ("toString(price)", {"price": 9.5e20}, "950000000000000000000"),
    ("toString(price)", {"price": 1e21}, "1e+21"),
    ("toString(price)", {"price": -1.25e-300}, "-1.25e-300"),
    ("trim(name)", {"name": "\x1c \u3000a b\x85\t"}, "\x1c \u3000a b"),
    ("trim(name)", {"name": " \u2003\xe9 \n"}, "\xe9"),
    ("trim(name)", {"name": " \n"}, ""),
    ("upper(name)", {"name": "\xdf\u0131i"}, "SSII"),
    ("lower(name)", {"name": "AB\xc9"}, "ab\xe9"),
    ('split(name,"\xe9\xe9")', {"name": "a\xe9\xe9\xe9b\xe9\xe9"}, ["a", "\xe9b", ""]),
    ('split(name,"abc")', {"name": "ab"}, ["ab"]),
    ('name matches "^a$"', {"name": "a\n"}, False),
    ('name matches "^a.b$"', {"name": "a\rb"}, True),
    ("price * 1000.0", {"price": 1.5}, 1500.0),
    ("user.n + 1", {"user": {"n": 1}}, 2.0),
    ("age ?? 1 + 1", {}, 2),
    ('trimPrefix(name, "ab") + trimSuffix(name, "ba")', {"name": "abba"}, "baab"),
    ("min(3, age, 2) + max(age, 1)", {"age": 1}, 2),
    ("abs(age)", {"age": -3}, 3),
    ('int("12") + int(4.7)', {}, 16),
    ('float("1e3")', {}, 1000.0),
    ("string(is_active)", {"is_active": True}, "true"),
    ('date("2024-10-20T08:05:44Z").Unix()', {}, 1729411544),
    ('date("2024-10-20").Year() * 100 + date("2024-10-20").Month()', {}, 202410),
]

_ITEMS = [{"p": 1, "q": "a"}, {"p": 2.5, "q": "b"}, {"p": None}]

# expr's lists, objects, predicates and times.
TRANSFORMS += [
    ('filter(tags, # != "x")', {"tags": ["x", 1, None]}, [1, None]),
    ('filter(split(name, ","), # != "a")', {"name": "a,b"}, ["b"]),
    ("map(items, .q)", {"items": _ITEMS}, ["a", "b", None]),
    ("map(items, {p: .p, n: age})", {"items": _ITEMS[:1], "age": 7}, [{"n": 7, "p": 1}]),
    ("map(1..3, # * 2)", {}, [2, 4, 6]),
    ("map(tags, [#, 1])", {"tags": ["x"]}, [["x", 1]]),
    ("find(items, .p > 1)", {"items": _ITEMS}, {"p": 2.5, "q": "b"}),
    ("find(items, .p > 1)?.q ?? 'none'", {"items": _ITEMS[:1]}, "none"),
    ("findLast(items, .p != nil).q", {"items": _ITEMS}, "b"),
    ("findIndex(tags, # == 2)", {"tags": [1, 2, 2]}, 1),
    ("findLastIndex(tags, # == 2)", {"tags": [1, 2, 2]}, 2),
    ("findIndex(tags, # == 9)", {"tags": [1, 2, 2]}, None),
    ("sum(items[:2], .p)", {"items": _ITEMS}, 3.5),
    ("sum(split(name, ','), toInt(#))", {"name": "1,2,x"}, 3),
    ("sum(1..4) + sum([])", {}, 10.0),
    ("mean(tags)", {"tags": [3, 1, 2]}, 2.0),
    ("mean([])", {}, 0.0),
    ("median([4, 1, 3, 2])", {}, 2.5),
    ("median(tags)", {"tags": [9, 1, 2.5]}, 2.5),
    ("min(tags)", {"tags": [3, 1.5]}, 1.5),
    ("min([])", {}, None),
    ("max([age, 4])", {"age": 3}, 4),
    ("max(user.list)", {"user": {"list": [1, 7]}}, 7.0),
    ("count([true, false, true])", {}, 2),
    ("first(tags)", {"tags": ["x", "y"]}, "x"),
    ("last(split(name, ','))", {"name": "a,b"}, "b"),
    ("first(tags)", {"tags": []}, None),
    ("take(tags, 2)", {"tags": [1, 2, 3]}, [1, 2]),
    ("take(1..2, 9)", {}, [1, 2]),
    ("reverse(tags)", {"tags": [1, "x"]}, ["x", 1]),
    ("sort(tags)", {"tags": [3, 1.5, 2]}, [1.5, 2, 3]),
    ('sort(tags, "desc")', {"tags": ["b", "é", "a"]}, ["é", "b", "a"]),
    ('sort([2, 1], "asc")', {}, [1, 2]),
    ("uniq(tags)", {"tags": [1, 1.0, "1", None, None, [1], [1]]}, [1, "1", None, [1]]),
    ("uniq(split(name, ','))", {"name": "a,b,a"}, ["a", "b"]),
    ("flatten(tags)", {"tags": [[1, 2], [3, [4]], "x"]}, [1, 2, 3, 4, "x"]),
    ("concat(tags, [age], split(name, ','))", {"tags": ["x"], "age": 1, "name": "a"}, ["x", 1, "a"]),
    ("concat([1], [2])", {}, [1, 2]),
    ("join(tags)", {"tags": ["x", "y"]}, "xy"),
    ("join(map(items, toString(.p)), '-')", {"items": _ITEMS}, "1-2.5-"),
    ("values(user)", {"user": {"b": 1, "a": "x"}}, ["x", 1]),
    ("toPairs({b: 1, a: name})", {}, [["a", None], ["b", 1]]),
    ("tags[1:-1]", {"tags": [1, 2, 3, 4]}, [2, 3]),
    ("tags[-9:9]", {"tags": [1, 2]}, [1, 2]),
    ("tags[2:1]", {"tags": [1, 2, 3]}, []),
    ("name[1:3] + name[-1:] + name[5:]", {"name": "aébc"}, "ébc"),
    ("(1..5)[-2]", {}, 4),
    ("3..1", {}, []),
    (
        "[name, age, price, nil, tags, {a: is_active}]",
        {"name": "n", "price": 2.5, "tags": [1]},
        ["n", None, 2.5, None, [1], {"a": None}],
    ),
    ("{}", {}, {}),
    ('{a: 1, "b c": {d: [nil]}}', {}, {"a": 1, "b c": {"d": [None]}}),
    ("{a: {b: age}}.a.b", {"age": 3}, 3),
    ("get(tags, 5) ?? get(user, 'x') ?? get(tags, -1)", {"tags": [1, 2], "user": {}}, 2),
    ("get(tags, age) ?? get(user, name) ?? 1", {"tags": [1], "user": {"a": 1}}, 1),
    ('name | trim() | split(",") | filter(# != "") | join("+") | upper()', {"name": " a,,b "}, "A+B"),
    ("let a = age * 2; let b = [a, a + 1]; b[1] * a", {"age": 3}, 42),
    ("user?.a.b.c", {}, None),
    ("waterfall(tags)", {"tags": [None, "", 7]}, "7"),
    ("waterfall(split(name, ','))", {"name": ",b"}, "b"),
    ("indexOf(name, 'b')", {"name": "éabb"}, 2),
    ("indexOf(name, 'x')", {"name": "ab"}, -1),
    ("lastIndexOf(name, 'b')", {"name": "éabb"}, 3),
    ("lastIndexOf(name, 'x')", {"name": "ab"}, -1),
    ("repeat(name, 2)", {"name": "ab"}, "abab"),
    ('trim(name, "_-")', {"name": "_-a_-"}, "a"),
    ("toJSON({a: tags})", {"tags": [1, "x", None]}, '{"a":[1,"x",null]}'),
    ("toJSON(name)", {"name": 'a"b'}, '"a\\"b"'),
    ("fromJSON(name).a[0]", {"name": '{"a": [5]}'}, 5),
    ("fromJSON(name)", {"name": "null"}, None),
    ("fromBase64(toBase64(name))", {"name": "é"}, "é"),
    ("now().Unix()", {}, 1729411544),
    ("now().UnixMilli() - now().UnixMicro() / 1000", {}, 0.0),
    ("now().Weekday()", {}, 0),
    ('(now() - date("2024-10-20T07:35:44.5Z")).Minutes()', {}, 30.0),
    ('(duration("1h30m") * 2 - duration("1500ms")).Seconds()', {}, 10798.5),
    ('duration("-1.5s").Milliseconds()', {}, -1500),
    ('(date("2024-10-20") - duration("24h")).Day()', {}, 19),
    ("0b101 + 0o17", {}, 20),
]

# A log line of a web server with a Google Analytics hit in its query, and the 22 columns derived from it.
_LINE = {
    "uri": "/g/collect",
    "args": (
        "v=2&en=page_view&cid=220153569.1760948734&sid=1760948733&sct=1&_et=7545&ep.event_id=1760948732998.3&cu=EUR"
        "&dl=https%3A%2F%2Fshop.example%2Fcart%3Fstep%3D2&dr=https%3A%2F%2Fnews.example%2F&dt=Your+cart&ul=de-de"
        "&sr=1920x1080&ep.debug=&up.plan=free"
    ),
    "agent": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36",
    "received": "2025-10-20 08:25:44.068833",
    "took": "0.190",
}
_WEB_LOG: list[tuple[str, Any]] = [
    ('getQueryParam(args, "en")', "page_view"),
    ("extractPathType(uri)", "collect"),
    ('getQueryParam(args, "cid")', "220153569.1760948734"),
    ('toInt(getQueryParam(args, "sid"))', 1760948733),
    ('toInt(getQueryParam(args, "sct"))', 1),
    ('toInt(getQueryParam(args, "_et"))', 7545),
    ('getNestedParam(args, "ep.event_id")', "1760948732998.3"),
    ("toInt(round(toFloat(took) * 1000000))", 190000),
    ("parseISO8601(received)", 1760948744),
    ("toDate(parseISO8601(received))", "2025-10-20"),
    ('urlDecode(getQueryParam(args, "dl"))', "https://shop.example/cart?step=2"),
    ('split(split(getQueryParam(args, "dl"), "://")[1], "/")[0]', "shop.example"),
    ('getQueryParam(args, "dr")', "https://news.example/"),
    ('getQueryParam(args, "dt")', "Your cart"),
    ('lower(getQueryParam(args, "ul"))', "de-de"),
    ('toInt(split(getQueryParam(args, "sr"), "x")[0])', 1920),
    ('waterfall(getQueryParam(args, "pr.currency"), getQueryParam(args, "cu"), "USD")', "EUR"),
    ('toFloat(getQueryParam(args, "epn.value"))', 0.0),
    ('parseUserAgent(agent, "browser")', "Unknown"),
    ('parseUserAgent(agent, "device")', "Desktop"),
    ('parseUserAgent(agent, "os")', "Windows"),
    ('hasKeyPrefix(parseQuery(args), ["pr", "epn."]) || hasAnyKey(parseQuery(args), ["ep.items"]) ? 1 : 0', 0),
]
TRANSFORMS += [(expression, _LINE, value) for expression, value in _WEB_LOG]

# Expression, record, and words of the error that makes the record a dead letter.
ERRORS: list[tuple[str, dict[str, Any], str]] = [
    # Without limits these run for days.
    ("float(name) > 1.0", {"name": "1" * 1_000_000 + "x"}, "the value is not a number"),
    ("int(name) > 1", {"name": "1" * 1_000_000 + "x"}, "the value is not a 64-bit integer"),
    ("len(uniq(tags)) > 1", {"tags": list(range(100_000))}, "the list has more than 1,000 elements"),
    (
        "len(parseQuery(name)) > 1",
        {"name": "&".join(f"p{n}=1" for n in range(100_000))},
        "the query has more than 1,000 parameters",
    ),
    ("age > 18", {}, "age > 18: age is nil"),
    ("age > 18 and is_active", {}, "age > 18: age is nil"),
    ("is_active or age > 18", {"is_active": False}, "age > 18: age is nil"),
    ("not is_active", {}, "is_active is nil"),
    ('name contains "x"', {}, "name is nil"),
    ("user.age > 18", {"user": {"age": "25"}}, "user.age is not a number"),
    ("user.age > 18", {"user": {}}, "user.age is nil"),
    ("user.a.b == nil", {"user": {}}, "user.a is nil"),
    ("user.a.b == nil", {"user": {"a": 1}}, "user.a is not an object"),
    ("tags[2] == 1", {"tags": [1, 2]}, "tags[2]: the index is out of range"),
    ("tags[-3] == 1", {"tags": [1, 2]}, "the index is out of range"),
    ("tags[0] == 1", {}, "tags is nil"),
    ("user.a == 1", {}, "user is nil"),
    ("user.flag and true", {"user": {"flag": 1}}, "user.flag is not a bool"),
    ("age + 1 > 0", {}, "age + 1: age is nil"),
    ("age + 1 > 0", {"age": 2**63 - 1}, "exceeds 64 bits"),
    ("-age > 0", {"age": -(2**63)}, "exceeds 64 bits"),
    ("count + 1 > 0", {"count": 2**63}, "exceeds 64 bits"),
    ("age / 0 > 1", {"age": 1}, "division by zero"),
    ("age % 0 > 1", {"age": 1}, "division by zero"),
    ("price ** 2 > 1 and price / 0 == 1", {"price": 1e300}, "division by zero"),
    ('toDate(price) == "x"', {"price": -1e300}, "not a second in the years"),
    ("int(price) == 1", {"price": 1e300}, "not a 64-bit integer"),
    ("(-8) ** 0.5 > 1", {}, "the power is undefined"),
    ("lower(name) == name", {}, "name is nil"),
    ("len(user.a) == 1", {"user": {"a": 5}}, "no length"),
    ("int(name) == 1", {"name": "4.2"}, "not a 64-bit integer"),
    ("float(name) == 1", {"name": "x"}, "not a number"),
    ("date(name) == date(name)", {"name": "2024-13-01"}, "the value is not a time"),
    ('urlDecode(name) == "x"', {"name": "%zz"}, "not URL-encoded"),
    ('urlDecode(name) == "x"', {"name": "%4"}, "not URL-encoded"),
    ('urlDecode(name) == "x"', {"name": "%C0%AF"}, "not URL-encoded UTF-8"),
    ('toDate(age) == "x"', {"age": 2**62}, "not a second in the years"),
    # Elements after the deciding one are not evaluated; elements before it are.
    ("any(items, .price > 1)", {"items": [{"price": 1}, {"price": None}, {"price": 2}]}, ".price is nil"),
    ("all(tags, # > 0)", {"tags": [1, "x"]}, "# is not a number"),
    ("any(tags, .a == 1)", {"tags": [None]}, "# is nil"),
    ("any(tags, .a == 1)", {"tags": [1]}, "# is not an object"),
    ("any(tags, true)", {}, "tags is nil"),
    ("any(user.a, true)", {"user": {"a": "x"}}, "user.a is not an array"),
    ("count(tags, # + 1 > 0) == 1", {"tags": [1, None]}, "# is nil"),
    ("sum(items, .price) > 1", {"items": [{"price": 1}, {}]}, ".price is nil"),
    ("sum(tags) > 1", {"tags": [1, "2"]}, "an element is not a number"),
    ("sum([age, age]) > 1", {"age": 2**62}, "exceeds 64 bits"),
    ("count(tags) > 1", {"tags": [1]}, "an element is not true or false"),
    ("sort(tags) == nil", {"tags": [1, "2"]}, "not all numbers or all strings"),
    ("sort([age, 1]) == nil", {}, "nil cannot be sorted"),
    ("flatten(tags) == nil", {"tags": [[[[[1]]]]]}, "nested deeper than 3"),
    ("take(tags, age) == nil", {"tags": [], "age": -1}, "the number is negative"),
    ("tags[1:] == nil", {}, "tags is nil"),
    ("name[age:] == nil", {"name": "x"}, "age is nil"),
    ("len(1..age) == 1", {"age": 2**62}, "a range has at most 1,000,000 numbers"),
    ('"x" in user.a', {"user": {"a": 1}}, "user.a is neither an array nor an object"),
    ("repeat(name, age) == nil", {"name": "ab", "age": 500001}, "to 1,000,000 characters"),
    ("fromJSON(name) == nil", {"name": "{"}, "the value is not JSON"),
    ("fromJSON(name) == nil", {"name": "1 2"}, "the value is not JSON"),
    ("fromJSON(name) == nil", {"name": ""}, "the value is not JSON"),
    ("fromJSON(name) == nil", {"name": '{"a":[{"b":1,"b":2}]}'}, "fromJSON(name): a[0].b: is given twice"),
    ("fromJSON(name) == nil", {"name": '{"a":1e400}'}, "a: 1e400 does not fit into a 64-bit float"),
    ("fromJSON(name) == nil", {"name": "[" * 2000}, "arrays and objects more than 1000 deep"),
    ("fromBase64(name) == nil", {"name": "%"}, "not Base64 text"),
    ("values(user.a) == nil", {"user": {"a": 1}}, "not an object"),
    ("[price * 1e308] == nil", {"price": 1e10}, "not a finite number"),
    ("[price] == nil", {"price": float("nan")}, "not a finite number"),
    ("{a: price} == nil", {"price": float("inf")}, "not a finite number"),
    ("map(tags, price) == nil", {"price": float("inf"), "tags": [1]}, "not a finite number"),
    ("toJSON(price * 1e308) == nil", {"price": 1e10}, "not a finite number"),
    ('(is_active ? price : user.a) == "x"', {"price": float("inf"), "is_active": True}, "not a finite number"),
    ('(date(name) - duration("24h")).Day() == 1', {"name": "0001-01-01"}, "not a time in the years 1 to 9999"),
    ("user?.a.b == nil", {"user": {}}, "user?.a is nil"),
]


# Results in the documentation: `expression` → `JSON`.
DOCUMENTATION = Path(__file__).parents[3] / "docs" / "guides" / "expressions.md"
_DOCUMENTED = re.findall(r"`([^`\n]+)` → `([^`\n]+)`", DOCUMENTATION.read_text())
DOCUMENTED: list[tuple[str, dict[str, Any], Any]] = [
    (expression, {}, json.loads(value)) for expression, value in _DOCUMENTED if expression != "expression"
]


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[int, Result]:
    """Evaluate every case of this module in one job; case id -> result."""
    tables = [(case, check_filter) for case in FILTERS] + [(case, check_transform) for case in TRANSFORMS]
    tables += [(case, check_filter) for case in ERRORS] + [(case, check_transform) for case in DOCUMENTED]
    cases = []
    for case, check in tables:
        checked = check(case[0], FIELDS)
        used = {name: kind for name, kind in FIELDS.items() if name in case[0]}
        cases.append(Case(checked, used, case[1]))
    return {id(case): result for (case, _), result in zip(tables, evaluate(spark, cases), strict=True)}


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case[0])
def test_a_filter_says_what_glassflow_says(results: dict[int, Result], case: tuple[str, dict[str, Any], bool]) -> None:
    assert results[id(case)] == Result(case[2], None)


@pytest.mark.parametrize("case", TRANSFORMS, ids=lambda case: case[0])
def test_a_transformation_gives_what_glassflow_gives(
    results: dict[int, Result], case: tuple[str, dict[str, Any], Any]
) -> None:
    assert results[id(case)] == Result(case[2], None)


@pytest.mark.parametrize("case", DOCUMENTED, ids=lambda case: case[0])
def test_the_documentation_tells_the_truth(results: dict[int, Result], case: tuple[str, dict[str, Any], Any]) -> None:
    assert results[id(case)] == Result(case[2], None)


def test_every_function_is_documented() -> None:
    text = DOCUMENTATION.read_text()
    names = {*BUILTINS, *HELPERS, *PREDICATES, *UNSUPPORTED} - {name for name in UNSUPPORTED if name.startswith("bit")}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[0])
def test_what_only_a_record_can_tell_is_an_error_in_its_column(
    results: dict[int, Result], case: tuple[str, dict[str, Any], str]
) -> None:
    result = results[id(case)]
    assert result.value is None
    assert result.error is not None
    assert case[2] in result.error
