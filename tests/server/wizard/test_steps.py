"""What the steps ask, what an answer changes, and which answers are refused. Kafka and ClickHouse are not asked."""

import pytest

from glassflow_dagster.definition.shared_tables import Writer
from glassflow_dagster.inference.definition import address_of, definition_of
from glassflow_dagster.inference.draft import JoinChoice, MappedColumn, ServerColumn, Target
from glassflow_dagster.server.wizard.checking import load, public_text
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.keys_help import find_keys
from glassflow_dagster.server.wizard.questions import AnswerRefused, Question, applies
from glassflow_dagster.server.wizard.steps import (
    STEPS,
    batching,
    columns,
    is_open,
    join,
    kafka,
    key,
    next_open,
    partner,
    review,
    steps_of,
    table,
    transform,
)  # fmt: skip
from glassflow_dagster.server.wizard.steps.step import Step
from tests.server.wizard.drafts import answered, draft, joined, side


def question(step: Step, name: str, **parts: object) -> Question:
    made = parts.get("draft") or draft()
    return next(each for each in step.ask(made) if each.name == name)  # type: ignore[arg-type]


def problems(step: Step, made: object, **answers: str) -> dict[str, str]:
    with pytest.raises(AnswerRefused) as refused:
        step.answer(made, answers)  # type: ignore[arg-type]
    return {
        path: "\n".join(e.text for e in refused.value.problems if e.path == path)
        for path in {e.path for e in refused.value.problems}
    }


def test_the_key_is_proposed_with_the_share_of_repeats() -> None:
    asked = question(key.STEP, "key")
    assert asked.values == ("order_id",)
    assert asked.options[0].remark.startswith("10.0% repeats: 90 values in 100 events")
    assert next(each for each in asked.options if each.value == "user_id").remark.startswith(
        "shared by different events"
    )


def test_a_key_of_several_fields_and_none_are_answers() -> None:
    made = draft()
    assert key.STEP.answer(made, {"key": "order_id\nuser_id", "window": "2h"}) == (
        "The first event of each order_id, user_id within 2h is kept."
    )
    assert (made.source.key, made.source.window) == (("order_id", "user_id"), "2h")
    assert key.STEP.answer(made, {"window": "1h"}) == "Every event is written."


@pytest.mark.parametrize(("window", "says"), [("soon", "is not a duration"), ("8d", "7 days"), ("0s", "7 days")])
def test_a_window_that_cannot_be_is_refused(window: str, says: str) -> None:
    assert says in problems(key.STEP, draft(), key="order_id", window=window)["window"]


def test_a_filter_with_a_mistake_is_refused_with_a_caret_below_it() -> None:
    made = draft()
    found = problems(transform.STEP, made, filter="amont > 0", computed="total = amount *\nbare")
    assert found["filter"].endswith("\n  amont > 0\n  ^^^^^")
    assert found["computed"].startswith("line 1: ")
    assert "\nline 2: write NAME = EXPRESSION" in found["computed"]
    assert made.source.filter == ""


def test_a_computed_field_has_the_kind_of_its_expression() -> None:
    made = draft()
    transform.STEP.answer(made, {"filter": "", "computed": "total = amount * price\n\nbig = amount >= 10"})
    assert [(each.name, each.kind) for each in made.computed] == [("total", "float"), ("big", "bool")]
    assert [each.value for each in transform.STEP.ask(made)] == ["", "total = amount * price\nbig = amount >= 10"]


def test_the_join_is_proposed_by_the_id_that_both_topics_have() -> None:
    made = joined()
    assert join.proposed(made.source, made.right) == JoinChoice("user_id", "user_id")  # type: ignore[arg-type]


def test_a_join_by_fields_of_different_kinds_is_refused_at_its_question() -> None:
    made = joined()
    found = problems(join.STEP, made, left_key="user_id", right_key="amount", window="1h", right_window="1h")
    assert "never equal" in found["right_key"]
    assert made.join is None


def test_a_join_is_answered_with_the_deduplication_of_its_partner() -> None:
    made = joined()
    answers = {
        "left_key": "user_id",
        "right_key": "user_id",
        "window": "2h",
        "type": "inner",
        "right_dedup": "event_id",
    }
    assert join.STEP.answer(made, answers) == "orders.user_id = users.user_id within 2h."
    assert made.join == JoinChoice("user_id", "user_id", "2h", "inner")
    assert made.right is not None
    assert made.right.key == ("event_id",)


def written(made: Draft, *tables: str) -> Draft:
    """Return a draft beside a pipeline that writes to tables of its default database."""
    database = made.clickhouse["database"] if made.clickhouse else "default"
    addresses = {address_of(made, each, name): "sink.table" for name in tables for each in (database, "analytics")}
    made.writers = [Writer("another", None, shares=False, tables=addresses)]
    return made


@pytest.mark.parametrize(
    ("made", "tables", "proposed"),
    [
        (draft(), [], "orders"),
        (draft(), ["orders"], "orders_2"),
        (draft(), ["orders", "orders_2"], "orders_3"),
        (joined(join=JoinChoice("user_id", "user_id")), ["orders"], "orders_with_users"),
        (joined(join=JoinChoice("user_id", "user_id")), ["orders", "orders_with_users"], "orders_2"),
    ],
)
def test_a_table_is_proposed_that_no_other_pipeline_writes(made: Draft, tables: list[str], proposed: str) -> None:
    written(made, *tables)
    assert {each.name: each.value for each in table.STEP.ask(made)}["table"] == proposed
    assert definition_of(made)["sink"]["table"] == proposed


def test_an_edited_table_of_another_pipeline_is_refused_in_the_review() -> None:
    made = written(answered())
    text = public_text(made).replace("table: orders\n", "table: default.taken\n")
    assert review.STEP.answer(made, {"text": text}).startswith("The definition is valid.")
    found = problems(review.STEP, written(made, "taken"), text=text)
    assert found["sink.table"].startswith("default.taken is also written by pipeline 'another'")


def test_the_step_of_the_join_is_only_asked_with_a_partner() -> None:
    assert join.STEP not in steps_of(draft())
    assert join.STEP in steps_of(joined())


def test_a_step_is_open_once_those_before_it_are_answered() -> None:
    made = draft()
    assert next_open(made) is STEPS[0]
    assert not is_open(made, key.STEP)
    made.done = {"kafka", "topic"}
    assert is_open(made, key.STEP)
    assert next_open(made) is key.STEP


def mapping_answers(made: object, **changes: str) -> dict[str, str]:
    answers = {}
    for index, row in enumerate(columns.rows(made)):  # type: ignore[arg-type]
        answers |= {f"column.{index}": row.mapped.column, f"type.{index}": row.mapped.type}
        answers |= {f"use.{index}": "yes"} if row.mapped.used else {}
    return {**answers, "order_by": "order_id", **changes}


def test_a_mapping_is_refused_at_the_column_that_is_wrong() -> None:
    made = draft()
    assert set(problems(columns.STEP, made, **mapping_answers(made, **{"type.2": "Int12"}))) == {"type.2"}
    assert set(problems(columns.STEP, made, **mapping_answers(made, **{"column.1": "order_id"}))) == {"column.1"}
    assert made.mapping == ()
    nothing = {name: value for name, value in mapping_answers(made).items() if not name.startswith("use")}
    assert "tick one" in problems(columns.STEP, made, **nothing)[""]


def test_columns_of_an_existing_table_keep_its_types() -> None:
    table = Target(
        "shop", "orders", (ServerColumn("id", "UUID", has_default=False), ServerColumn("n", "Int8", has_default=False))
    )
    made = draft(target=table)
    assert "order_by" not in {each.name for each in columns.STEP.ask(made)}
    answers = {"use.0": "yes", "column.0": "id", "type.0": "String"}
    assert columns.STEP.answer(made, answers) == "Columns that are filled: 1. With their type's default: n."
    assert made.mapping[0] == MappedColumn("order_id", "id", "UUID")
    assert "has no column 'other'" in problems(columns.STEP, made, **{"use.0": "yes", "column.0": "other"})["column.0"]


def test_batching_is_a_number_and_a_duration() -> None:
    made = draft()
    batching.STEP.answer(made, {"rows": "20,000", "delay": "500ms"})
    assert (made.rows, made.delay) == (20_000, "500ms")
    assert "no positive number" in problems(batching.STEP, made, rows="many", delay="1s")["rows"]
    assert "not longer than 0" in problems(batching.STEP, made, rows="1", delay="0s")["delay"]


def test_an_edited_text_is_the_definition_until_a_step_is_answered_again() -> None:
    made = draft()
    text = next(each.value for each in review.STEP.ask(made) if each.name == "text")
    edited = text.replace("max_delay_time: 1s", "max_delay_time: 3s")
    definition = review.final_definition(made, {"text": edited, "pipeline_id": "orders", "name": ""})
    assert definition["sink"]["max_delay_time"] == "3s"
    assert made.text == edited.strip()
    batching.STEP.answer(made, {"rows": "10", "delay": "2s"})
    assert made.text is None
    assert "max_delay_time: 2s" in next(each.value for each in review.STEP.ask(made) if each.name == "text")


def test_an_id_and_a_name_above_the_text_count() -> None:
    made = draft()
    text = next(each.value for each in review.STEP.ask(made) if each.name == "text")
    definition = review.final_definition(made, {"text": text, "pipeline_id": "other-orders", "name": "Orders"})
    assert (definition["pipeline_id"], definition["name"]) == ("other-orders", "Orders")
    assert made.pipeline_id == "other-orders"


def test_a_text_with_mistakes_is_refused_with_each() -> None:
    made = draft()
    answers = {"text": "pipeline_id: orders\nsources: []", "pipeline_id": "orders", "name": ""}
    assert set(problems(review.STEP, made, **answers)) >= {"sources", "sink"}
    assert "neither YAML nor JSON" in problems(review.STEP, made, **{**answers, "text": "a: ["})[""]


def test_brokers_that_do_not_answer_are_refused() -> None:
    made = draft()
    made.kafka = None
    assert "127.0.0.1:1" in problems(kafka.STEP, made, brokers="127.0.0.1:1")["brokers"]
    assert problems(kafka.STEP, made, brokers="", protocol="PLAINTEXT").keys() == {"brokers"}
    assert problems(kafka.STEP, made, brokers="127.0.0.1:1", protocol="SASL_SSL").keys() == {"username"}


def test_a_password_is_not_sent_to_other_brokers() -> None:
    made = draft()
    made.kafka = {"brokers": ["a:1"], "protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "p"}
    asked = question(kafka.STEP, "password", draft=made)
    assert asked.value == ""
    found = problems(kafka.STEP, made, brokers="b:1", protocol="SASL_SSL", username="u", password="")
    assert "for another server" in found["password"]


LOGINS = [
    ("OAUTHBEARER", {"token_url": "https://id.example/token", "client_id": "c", "client_secret": "s3", "scope": ""},
     {"oauth": {"token_url": "https://id.example/token", "client_id": "c", "client_secret": "s3"}}),
    ("AWS_MSK_IAM", {"region": "eu-west-1", "role_arn": ""}, {"aws": {"region": "eu-west-1"}}),
    ("GSSAPI", {"username": "me@EXAMPLE.COM", "kerberos_service_name": "kafka", "kerberos_realm": "EXAMPLE.COM",
                "kerberos_keytab": "BQIA\nAAA=", "kerberos_config": "[libdefaults]"},
     {"username": "me@EXAMPLE.COM", "kerberos_service_name": "kafka", "kerberos_realm": "EXAMPLE.COM",
      "kerberos_keytab": "BQIAAAA=", "kerberos_config": "[libdefaults]"}),
    ("SCRAM-SHA-512", {"username": "u", "password": "p"}, {"username": "u", "password": "p"}),
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "answers", "keys"), LOGINS, ids=[each[0] for each in LOGINS])
def test_each_login_is_answered(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, answers: dict[str, str], keys: dict[str, object]
) -> None:
    monkeypatch.setattr(kafka, "list_topics", lambda _: {"orders": 1})
    made = draft()
    sent = {"brokers": "a:1", "protocol": "SASL_SSL", "mechanism": mechanism, **answers}
    assert kafka.STEP.answer(made, sent) == "Connected: 1 topic."
    assert made.kafka == {"brokers": ["a:1"], "protocol": "SASL_SSL", "mechanism": mechanism, **keys}
    # A secret that is not sent again stays, and is not in the questions.
    secrets = {each.name for each in kafka.STEP.ask(made) if each.is_secret}
    before = dict(made.kafka)
    kafka.STEP.answer(made, {name: text for name, text in sent.items() if name not in secrets})
    assert made.kafka == before
    assert all(not each.value for each in kafka.STEP.ask(made) if each.is_secret)
    made.left = side("orders", [{"order_id": "a"}])
    assert load(definition_of(made)).source.connection_params.mechanism == mechanism


@pytest.mark.parametrize(("mechanism", "missing"), [
    ("OAUTHBEARER", "token_url"), ("GSSAPI", "username"), ("PLAIN", "username"),
])  # fmt: skip
def test_a_login_without_its_settings_is_refused_at_the_first_one(mechanism: str, missing: str) -> None:
    made = draft()
    made.kafka = None
    found = problems(kafka.STEP, made, brokers="a:1", protocol="SASL_SSL", mechanism=mechanism)
    assert set(found) == {missing}


def test_a_client_certificate_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "list_topics", lambda _: {})
    made = draft()
    tls = {"brokers": "a:1", "protocol": "SSL"}
    assert set(problems(kafka.STEP, made, **tls, client_cert="CERT")) == {"client_key"}
    assert set(problems(kafka.STEP, made, **tls, client_key="KEY")) == {"client_cert"}
    kafka.STEP.answer(made, {**tls, "client_cert": "CERT", "client_key": "KEY", "root_ca": "CA"})
    assert made.kafka == {
        "brokers": ["a:1"], "protocol": "SSL", "root_ca": "CA", "client_cert": "CERT", "client_key": "KEY",
    }  # fmt: skip


def test_only_the_questions_of_the_chosen_login_apply() -> None:
    asked = kafka.STEP.ask(draft())

    def names(**answers: str) -> set[str]:
        return {each.name for each in asked if applies(each, asked, answers)}

    assert names(protocol="PLAINTEXT", mechanism="PLAIN") == {"brokers", "protocol"}
    assert names(protocol="SASL_PLAINTEXT", mechanism="AWS_MSK_IAM") == {
        "brokers", "protocol", "mechanism", "region", "role_arn",
    }  # fmt: skip
    assert names(protocol="SSL") == {"brokers", "protocol", "root_ca", "client_cert", "client_key"}


EVENTS = [{"id": f"e{number}", "created_at": 1_700_000_000 + number, "note": "x"} for number in range(20)]


def test_duplicates_are_found_by_the_time_in_the_event() -> None:
    made = draft()
    made.left = side("orders", EVENTS)
    assert question(key.STEP, "event_time", draft=made).value == "created_at"
    answers = {"key": "id", "window": "1h", "clock": "event", "event_time": "created_at", "event_unit": "ms",
               "late": "dead_letter", "lateness": "2h"}  # fmt: skip
    assert key.STEP.answer(made, answers) == "The first event of each id within 1h by created_at is kept."
    config = load(definition_of(made)).dedup
    assert config is not None
    assert (config.clock, config.event_time, config.time_unit, config.late) == (
        "event",
        "created_at",
        "ms",
        "dead_letter",
    )
    assert config.lateness.total_seconds() == 7200
    assert set(problems(key.STEP, made, **{**answers, "lateness": "30d"})) == {"lateness"}
    assert made.source.clock is not None
    assert made.source.clock.lateness == "2h"
    # A join needs the other clock for duplicates.
    assert "time of arrival" in problems(partner.STEP, made, topic="users")["topic"]


def test_a_field_that_is_no_time_is_not_proposed_for_it() -> None:
    assert question(key.STEP, "event_time").value == ""
    answers = {"key": "order_id", "window": "1h", "clock": "event", "event_time": ""}
    assert "choose the field" in problems(key.STEP, draft(), **answers)["event_time"]


def test_a_join_by_the_times_in_the_events() -> None:
    made = draft(right=side("users", EVENTS))
    made.left = side("orders", EVENTS)
    answers = {"left_key": "id", "right_key": "id", "window": "1h", "right_window": "1h", "clock": "event",
               "left_time": "created_at", "left_unit": "ms", "right_time": "note"}  # fmt: skip
    join.STEP.answer(made, answers)
    config = load(definition_of(made)).join
    assert config is not None
    assert (config.clock, config.left_source.event_time, config.left_source.event_time_unit) == (
        "event", "created_at", "ms",
    )  # fmt: skip
    assert (config.right_source.event_time, config.right_source.event_time_unit) == ("note", None)
    assert set(problems(join.STEP, made, **{**answers, "left_time": "nothing"})) == {"left_time"}


def test_several_tables_are_written_into_the_definition() -> None:
    made = draft()
    text = next(each.value for each in review.STEP.ask(made) if each.name == "text")
    routes = "  routes:\n  - table: large_orders\n    filter: amount > 50\n"
    edited = text.rstrip() + "\n" + routes
    final = review.final_definition(made, {"text": edited, "pipeline_id": "orders", "name": ""})
    assert [each["table"] for each in final["sink"]["routes"]] == ["large_orders"]
    wrong = edited.replace("amount > 50", "amont > 50")
    assert "sink.routes[0].filter" in problems(review.STEP, made, text=wrong, pipeline_id="orders", name="")


def test_keys_of_a_definition_are_found_by_words() -> None:
    [found] = [each for each in find_keys("max_batch_size") if each.path == "sink.max_batch_size"]
    assert found.type == "integer"
    assert "sink.mapping[].column_type" in {each.path for each in find_keys("column_type")}
    assert find_keys("nothing like it") == []
