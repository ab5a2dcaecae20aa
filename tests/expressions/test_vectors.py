"""What GlassFlow's documentation, code and tests say that an expression gives for a record."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.config.types import FieldKind
from glassflow_dagster.expressions.language.check import check_filter, check_transform
from tests.expressions.evaluation import Case, Result, evaluate

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
    ("len(tags) == 2 and len(name) == 4", {"tags": [1, 2], "name": "Jöhn"}, True),
]

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Version/14.0 Mobile/15E148 Safari/604.1"
IPAD = "Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36"
EDGE = f"{WINDOWS} Edg/120.0.0.0"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/14.1 Safari/605.1.15"
ANDROID = "Mozilla/5.0 (Linux; Android 11; Pixel 5) AppleWebKit/537.36 Chrome/120.0 Mobile Safari/537.36"

# The helpers, and expr's functions beside them.
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

# Expression, record, and words of the error that make it a dead letter.
ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("age > 18", {}, "age > 18: age is nil"),
    ("age > 18 and is_active", {}, "age > 18: age is nil"),
    ("is_active or age > 18", {"is_active": False}, "age > 18: age is nil"),
    ("not is_active", {}, "is_active is nil"),
    ('name contains "x"', {}, "name is nil"),
    ("user.age > 18", {"user": {"age": "25"}}, "user.age is no number"),
    ("user.age > 18", {"user": {}}, "user.age is nil"),
    ("user.a.b == nil", {"user": {}}, "user.a is nil"),
    ("user.a.b == nil", {"user": {"a": 1}}, "user.a is no object"),
    ("tags[2] == 1", {"tags": [1, 2]}, "tags[2]: the index is out of range"),
    ("tags[-3] == 1", {"tags": [1, 2]}, "the index is out of range"),
    ("tags[0] == 1", {}, "tags is nil"),
    ("user.a == 1", {}, "user is nil"),
    ("user.flag and true", {"user": {"flag": 1}}, "user.flag is no truth value"),
    ("age + 1 > 0", {}, "age + 1: age is nil"),
    ("age + 1 > 0", {"age": 2**63 - 1}, "beyond 64 bits"),
    ("-age > 0", {"age": -(2**63)}, "beyond 64 bits"),
    ("count + 1 > 0", {"count": 2**63}, "beyond 64 bits"),
    ("age / 0 > 1", {"age": 1}, "division by zero"),
    ("age % 0 > 1", {"age": 1}, "division by zero"),
    ("price ** 2 > 1 and price / 0 == 1", {"price": 1e300}, "division by zero"),
    ('toDate(price) == "x"', {"price": -1e300}, "no second of the years"),
    ("int(price) == 1", {"price": 1e300}, "no 64-bit integer"),
    ("(-8) ** 0.5 > 1", {}, "no such power"),
    ("lower(name) == name", {}, "name is nil"),
    ("len(user.a) == 1", {"user": {"a": 5}}, "no length"),
    ("int(name) == 1", {"name": "4.2"}, "no 64-bit integer"),
    ("float(name) == 1", {"name": "x"}, "no number"),
    ("date(name) == date(name)", {"name": "2024-13-01"}, "this is no time"),
    ('urlDecode(name) == "x"', {"name": "%zz"}, "not URL-encoded"),
    ('toDate(age) == "x"', {"age": 2**62}, "no second of the years"),
]


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[int, Result]:
    """Every case of this module, evaluated in one job; by the case's identity."""
    tables = [(case, check_filter) for case in FILTERS] + [(case, check_transform) for case in TRANSFORMS]
    tables += [(case, check_filter) for case in ERRORS]
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


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[0])
def test_what_only_a_record_can_tell_is_an_error_in_its_column(
    results: dict[int, Result], case: tuple[str, dict[str, Any], str]
) -> None:
    result = results[id(case)]
    assert result.value is None
    assert result.error is not None
    assert case[2] in result.error
