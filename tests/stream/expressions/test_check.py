"""Errors that are found before any record: the message, its position, and the advice."""

import subprocess
import sys

import pytest

from glassflow_dagster.definition.expressions.check import check_filter, check_transform, undeclared_names
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.expressions.signatures import BUILTINS, HELPERS
from glassflow_dagster.definition.expressions.syntax import Field, Span
from glassflow_dagster.definition.model.types import FieldKind

FIELDS: dict[str, FieldKind] = {
    "name": "string",
    "age": "int",
    "user": "map",
    "user.name": "string",
    "hub.code": "string",
    "tags": "array",
    "ok": "bool",
    "count": "uint",
}

# Expression, words of the error, and the text that the caret marks.
REFUSED = [
    ("", "the expression is empty", ""),
    ("  ", "the expression is empty", ""),
    ("age >>>> 18", 'unexpected ">"', ">"),
    ("age >", "the expression ends too early", ""),
    ("(age > 1", "the expression ends too early", ""),
    ("name == 'x", 'unexpected "\'"', "'"),
    ("filter(tags, {# > 1)", 'unexpected ")"', ")"),
    ("let x = 1", "the expression ends too early", ""),
    ("agee > 18", "unknown field 'agee'; did you mean 'age'?", "agee"),
    ("user.nmae.x == 1 and hub.cod == 'x'", "unknown field 'hub.cod'; did you mean 'hub.code'?", "hub.cod"),
    ("hub == nil", "unknown field 'hub'", "hub"),
    ("name.first == nil", "name is a string and has no field 'first'", "name.first"),
    ("uper(name) == 'X'", "unknown function 'uper'; did you mean 'upper'?", "uper(name)"),
    ("now() > name", "have no order", "now() > name"),
    ("now(1) == nil", "now takes 0 argument(s), but has 1", "now(1)"),
    ("now() + 1 == nil", "`+` of a time and an integer is not supported; add or subtract durations", "now() + 1"),
    ("duration('1 hour') == nil", "not a duration; write numbers with the units h, m, s", "'1 hour'"),
    ("duration('1ns') == nil", "finer than a microsecond", "'1ns'"),
    ("duration('9999999h') == nil", "longer than 292 years", "'9999999h'"),
    ("duration(name) == nil", "duration needs a literal string", "name"),
    ("(now() - now()).Year() == 1", "unknown method 'Year'", "(now() - now()).Year()"),
    ("# == 1", "refer to the element only inside any(..), filter(..) and the like", "#"),
    (".name == 1", "refer to the element only inside any(..), filter(..) and the like", "."),
    ("any(tags)", "any takes a list and a predicate, as in any(list, # > 1)", "any(tags)"),
    ("any(tags, {#}, 1)", "any takes a list and a predicate", "any(tags, {#}, 1)"),
    ("any(name, # == 'a')", "any searches a list or an array, but this is a string", "name"),
    ("any(tags, 'a')", "true or false is needed here, but this is a string", "'a'"),
    ("any(split(name, ','), # > 1)", "have no order", "# > 1"),
    ("len(tags, {#}) == 1", "len takes 1 argument(s), but has 2", "len(tags, {#})"),
    ("len({#}) == 1", "a predicate is allowed in any, all", "{#}"),
    ("any(tags, " * 5 + "true" + ")" * 5, "predicates are nested deeper than 4", "any(tags, true)"),
    ("sum(tags, .name == 'x') == 1", "a number is needed here", ".name == 'x'"),
    ("ok and reduce(tags, #) == 1", "reduce is not supported; use sum, min, max, count or join", "reduce(tags, #)"),
    ("get(tags) == 1", "get takes two arguments", "get(tags)"),
    ("fliter(tags, #) == 1", "unknown function 'fliter'; did you mean 'filter'?", "fliter(tags, #)"),
    ("[now()] == nil", "lists and objects cannot hold a time; use (..).Unix()", "now()"),
    ("{a: 1, a: 2} == nil", "the name 'a' occurs twice here", "{a: 1, a: 2}"),
    ("tags == ['a']", "cannot be compared; compare their elements, or toJSON(..)", "tags == ['a']"),
    ("name[:'a'] == ''", "an integer is needed here, but this is a string", "'a'"),
    ("age[1:] == nil", "an integer cannot be sliced; lists, arrays and strings can", "age"),
    ("1..name == nil", "an integer is needed here, but this is a string", "name"),
    ("'a' in 1..3", "a string and an integer are never equal", "'a' in 1..3"),
    ("sort(tags, 'up') == nil", 'the order is "asc" or "desc"', "'up'"),
    ("max(1, tags) == 1", "max takes several values or one list, not an array among others", "tags"),
    ("let age = 1; ok", "'age' is already defined", "let age = 1; ok"),
    ("let x = 1; let x = 2; ok", "'x' is already defined", "let x = 2; ok"),
    ("ok and (let x = 1; ok)", 'unexpected "x"', "x"),
    ("age + 5", "a filter needs true or false, but this is an integer", "age + 5"),
    ("not name == 'x'", "true or false is needed here, but this is a string", "name"),
    ("age and ok", "true or false is needed here, but this is an integer", "age"),
    ("age == 'x'", "an integer and a string are never equal", "age == 'x'"),
    ("age in ['x']", "an integer and a string are never equal", "'x'"),
    ("age < 'x'", "have no order", "age < 'x'"),
    ("name + 1 == 'x'", "`+` needs two numbers or two strings", "name + 1"),
    ("age % 1.5 == 1", "`%` needs integers", "age % 1.5"),
    ("nil + 1 == 1", "`+` needs two numbers or two strings", "nil + 1"),
    ("user.a + user.b == 1", "two values of unknown type", "user.a + user.b"),
    ("name matches '['", "not a valid Go regular expression: missing ]", "'['"),
    ("name matches '(?=a)'", "not a valid Go regular expression: invalid perl operator", "'(?=a)'"),
    ("name matches name", "must be a literal string", "name"),
    ("name matches upper('x')", "must be a literal string", "upper('x')"),
    ("age contains 'x'", "a string is needed here", "age"),
    ("name in 'abc'", "`in` searches a list", "'abc'"),
    ("age in user", "is searched for a string", "age"),
    ("tags in tags", "a list cannot be searched for an array", "tags"),
    ("len() == 1", "len takes 1 argument(s), but has 0", "len()"),
    ("min() == 1", "min takes 1 or more argument(s)", "min()"),
    ("len(age) == 1", "len does not take an integer here", "age"),
    ("lower(nil) == ''", "lower does not take nil", "nil"),
    ("'a' in split('a', name)", "split needs a literal string here", "name"),
    ("split(name, ',')['a'] == 1", "a string cannot index a list of strings", "'a'"),
    ("tags['a'] == 1", "a string cannot index an array", "'a'"),
    ("name[0] == 'a'", "a string has no elements", "name"),
    ("age.Year() == 1", "an integer has no methods", "age"),
    ("date(name).Yaer() == 1", "unknown method 'Yaer'; did you mean 'Year'?", "date(name).Yaer()"),
    ("join([1], ',') == ''", "join does not take a list of integers here", "[1]"),
    ("age == 99999999999999999999", "is too large; the largest", "99999999999999999999"),
    (
        "ok ? date(name) == date(name) : (ok ? date(name) : 1) == nil",
        "give both the same type",
        "(ok ? date(name) : 1)",
    ),
    ("abs(" * 101 + "1" + ")" * 101, "nested or chained too deeply", "abs(1"),
]


@pytest.mark.parametrize(("text", "problem", "marked"), REFUSED, ids=[case[0][:40] for case in REFUSED])
def test_what_is_wrong_is_told_with_its_place(text: str, problem: str, marked: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_filter(text, FIELDS)
    assert problem in caught.value.problem
    span = caught.value.span
    assert text[span.start : span.end].strip("()") == marked.strip("()")


def test_the_caret_stands_under_the_place_in_its_line() -> None:
    with pytest.raises(ExpressionError) as caught:
        check_filter("ok and\n  agee > 1", FIELDS)
    assert str(caught.value).splitlines() == [
        "unknown field 'agee'; did you mean 'age'? (line 2, column 3)",
        "    agee > 1",
        "    ^^^^",
    ]


def test_the_longest_declared_name_is_the_field() -> None:
    checked = check_transform("user.name", FIELDS)
    assert checked.root == Field("user.name", Span(0, 9))
    assert checked.kind == "string"
    assert check_transform("user.age", FIELDS).kind == "any"


@pytest.mark.parametrize("name", sorted(set(BUILTINS) & set(HELPERS)))
def test_a_name_in_both_vocabularies_means_in_each_place_what_it_meant(name: str) -> None:
    arguments = {"split": "name, ','", "join": "['a'], ','", "replace": "name, 'a', 'b'"}
    call = f"{name}({arguments.get(name, 'name' if len(BUILTINS[name].parameters) == 1 else 'name, name')})"
    assert not check_filter(f"{call} == nil", FIELDS).functions[name].tolerant
    assert check_transform(call, FIELDS).functions[name].tolerant


def test_a_long_chain_is_refused_before_it_exhausts_the_stack() -> None:
    check_filter(" or ".join(["ok"] * 100), FIELDS)
    with pytest.raises(ExpressionError, match="too deeply"):
        check_filter(" or ".join(["ok"] * 5000), FIELDS)


def test_variables_that_double_at_every_step_are_refused() -> None:
    doubled = "let a0 = age; " + "".join(f"let a{n} = a{n - 1} + a{n - 1}; " for n in range(1, 30)) + "a29 > 1"
    with pytest.raises(ExpressionError, match="too long after the variables are inserted"):
        check_filter(doubled, FIELDS)


def test_no_output_is_a_duration() -> None:
    with pytest.raises(ExpressionError, match="a duration cannot be an output"):
        check_transform("now() - date(name)", FIELDS)


def test_checking_needs_no_spark() -> None:
    code = "import sys, glassflow_dagster.definition.expressions.check; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BIG: dict[str, FieldKind] = {"d": "decimal", "i": "bigint", "s": "string", "n": "int"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [("d", "decimal"), ("i", "bigint"), ("toString(d)", "string"), ("toFloat(i)", "float"), ("d == nil", "bool"),
     ("s == nil ? d : nil", "decimal")],
)  # fmt: skip
def test_numbers_of_many_digits_pass_through(text: str, kind: str) -> None:
    assert check_transform(text, BIG).kind == kind


@pytest.mark.parametrize(
    "text",
    ["d + 1", "d == 1", "d > n", "-d", "toInt(d)", "d in [1]", "d ?? s", "round(d)", "d == d", "len(i)", "d == i"],
)
def test_numbers_of_many_digits_are_not_calculated_with(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"\(use toFloat\(\.\.\) or toString\(\.\.\)\)"):
        check_transform(text, BIG)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a + b.c + d.e.f", ("b",)),
        ("let n = lower(owner); n == 'a' or n == unit", ("owner", "unit")),
        ("let a1 = d; a1.x > 1", ("d",)),
        ("any(tags, .name == # or # == x)", ("tags", "x")),
        ("d.g == d?.e", ("d",)),
        ("{m: [b[a], 1]}", ("b",)),
    ],
)
def test_undeclared_names_are_those_that_no_declared_one_begins(text: str, names: tuple[str, ...]) -> None:
    assert undeclared_names(text, ["a", "d.e"]) == names
