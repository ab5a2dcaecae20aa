"""The definition that follows from answers: valid at any time, and as one would write it by hand."""

import pytest

from glassflow_dagster.definition.load import load_written
from glassflow_dagster.inference.definition import available_fields, definition_of, proposed_mapping, proposed_order
from glassflow_dagster.inference.draft import Computed, JoinChoice, MappedColumn, ServerColumn, Target
from glassflow_dagster.server.wizard.checking import load, problems_of, public_text, with_secrets
from glassflow_dagster.server.wizard.questions import AnswerRefused
from tests.server.wizard.drafts import draft, joined, side

JOIN = JoinChoice("user_id", "user_id")


def test_proposals_alone_are_a_valid_definition() -> None:
    definition = definition_of(draft())
    config = load_written(definition)
    assert config.pipeline_id == "orders"
    assert config.dedup is not None
    assert config.dedup.key_fields == ("order_id",)
    assert [each.column_name for each in config.sink.mapping] == [
        "order_id",
        "user_id",
        "amount",
        "price",
        "ingested_at",
    ]
    assert config.sink.create_table is not None
    assert config.sink.create_table.order_by == "order_id"


def test_an_optional_field_is_declared_and_gets_a_nullable_column() -> None:
    made = draft()
    made.left = side("orders", [{"id": "a", "note": "x"}, {"id": "b"}])
    definition = definition_of(made)
    assert definition["sources"][0]["schema_fields"][1] == {"name": "note", "type": "string", "required": False}
    assert definition["sink"]["mapping"][1]["column_type"] == "Nullable(String)"


def test_filter_and_computed_fields_keep_the_other_fields() -> None:
    made = draft(computed=(Computed("total", "amount * price", "float"),))
    made.source.filter = "amount > 0"
    config = load(definition_of(made))
    assert [each.type for each in config.transforms] == ["filter", "dedup", "stateless"]
    assert [each.name for each in config.sink.mapping] == [
        "order_id",
        "user_id",
        "amount",
        "price",
        "total",
        "_batch_time",
    ]


def test_a_computed_field_replaces_one_of_its_name() -> None:
    made = draft(computed=(Computed("amount", "amount * 2", "int"),))
    assert [each.name for each in available_fields(made)] == ["order_id", "user_id", "price", "amount"]
    assert load(definition_of(made))


def test_a_left_join_makes_the_partners_fields_nullable_and_renames_what_both_have() -> None:
    config = load(definition_of(joined(join=JOIN)))
    assert config.join is not None
    assert config.join.keeps_unmatched
    types = {each.column_name: each.column_type for each in config.sink.mapping}
    assert types["name"] == "Nullable(String)"
    assert types["users_amount"] == "Nullable(Int64)"
    assert config.pipeline_id == "orders_with_users"
    assert [source.source_id for source in config.inputs] == ["orders", "users"]


def test_computed_fields_come_after_a_join() -> None:
    made = joined(join=JOIN, computed=(Computed("total", "amount * price", "float"),))
    config = load(definition_of(made))
    assert [each.source_id for each in config.transforms] == ["orders", "users", "join"]
    assert "total" in {each.name for each in config.sink.mapping}


def test_an_existing_table_gets_the_fields_with_the_names_of_its_columns() -> None:
    columns = (
        ServerColumn("orderId", "String", has_default=False),
        ServerColumn("price", "Decimal(10, 2)", has_default=False),
        ServerColumn("loaded", "DateTime", has_default=True),
    )  # fmt: skip
    made = draft(target=Target("shop", "orders", columns))
    mapping = proposed_mapping(made)
    assert [each for each in mapping if each.used] == [
        MappedColumn("order_id", "orderId", "String"), MappedColumn("price", "price", "Decimal(10, 2)"),
    ]  # fmt: skip
    assert "create_table" not in definition_of(made)["sink"]


def test_a_new_table_is_ordered_by_the_key() -> None:
    made = draft()
    assert proposed_order(made) == "order_id"
    made.source.key = ("order_id", "user_id")
    assert proposed_order(made) == "(order_id, user_id)"
    made.source.key = ()
    assert proposed_order(made) == "tuple()"


def test_a_wrong_type_is_a_problem_of_its_column() -> None:
    made = draft(mapping=(MappedColumn("order_id", "order_id", "Int12"),))
    [problem] = problems_of(made)
    assert problem.path == "sink.mapping[0].column_type"


def test_the_text_has_masks_which_stand_for_the_secrets_of_the_same_server() -> None:
    made = draft()
    login = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "k3y"}
    made.kafka = {**(made.kafka or {}), **login}
    text = public_text(made)
    assert "k3y" not in text
    sent = {**definition_of(made)}
    sent["sources"] = [{**sent["sources"][0], "connection_params": {**made.kafka, "password": "********"}}]
    assert with_secrets(sent, made)["sources"][0]["connection_params"]["password"] == "k3y"
    sent["sources"][0]["connection_params"]["brokers"] = ["other:9092"]
    with pytest.raises(AnswerRefused, match="is kept for another server"):
        with_secrets(sent, made)


def test_a_reference_to_the_servers_files_is_refused() -> None:
    made = draft()
    made.source.filter = 'order_id == "${file:/etc/passwd}"'
    with pytest.raises(AnswerRefused, match="refers to the server's variables or files"):
        load(definition_of(made))
