"""DDL statements as text, without a server."""

from typing import Any

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name, quote_text
from glassflow_dagster.stores.clickhouse.tables import ddl, token_window
from glassflow_dagster.stores.clickhouse.tables.views import view_target
from tests.stores.clickhouse.definitions import sms_status


def pipeline(**create_table: Any) -> PipelineConfig:
    return sms_status(create_table=create_table or None)


def test_quotes_in_names_and_texts_are_part_of_them() -> None:
    assert quote_name("a`b\\") == "`a\\`b\\\\`"
    assert quote_text("a'b\\") == "'a\\'b\\\\'"
    assert full_name("d", "t.x") == "`d`.`t.x`"


def test_the_target_has_the_mapped_columns_the_extra_ones_and_a_token_window() -> None:
    assert ddl.create_target(sms_status()).splitlines() == [
        "CREATE TABLE IF NOT EXISTS `analytics`.`sms_statuses_latest`",
        "(",
        "    `sms_id` String,",
        "    `status` LowCardinality(String),",
        "    `updated_at` DateTime,",
        "    `recipient` String,",
        "    `ingested_at` DateTime DEFAULT now()",
        ")",
        "ENGINE = ReplacingMergeTree(ingested_at)",
        "PARTITION BY toYYYYMM(updated_at)",
        "ORDER BY sms_id",
        "SETTINGS non_replicated_deduplication_window = 10000",
    ]


@pytest.mark.parametrize(
    ("kind", "nullable"),
    [
        ("String", "Nullable(String)"),
        ("DateTime64(3, 'UTC')", "Nullable(DateTime64(3, 'UTC'))"),
        ("LowCardinality(String)", "LowCardinality(Nullable(String))"),
        ("Nullable(Int8)", "Nullable(Int8)"),
        ("LowCardinality(Nullable(String))", "LowCardinality(Nullable(String))"),
        ("Array(String)", "Array(String)"),
        ("SimpleAggregateFunction(max, Int8)", "SimpleAggregateFunction(max, Nullable(Int8))"),
        ("SimpleAggregateFunction(anyLast, Nullable(Int8))", "SimpleAggregateFunction(anyLast, Nullable(Int8))"),
        ("Point", "Point"),
        ("Nested(a Int8)", "Nested(a Int8)"),
    ],
)
def test_a_type_has_a_form_that_takes_null_where_clickhouse_has_one(kind: str, nullable: str) -> None:
    assert ddl.as_nullable(kind) == nullable


def test_the_column_of_an_optional_field_is_made_nullable_unless_the_table_rests_on_it() -> None:
    optional = {name: {"required": False} for name in ("sms_id", "status", "updated_at", "recipient")}
    columns = [column.sql for column in ddl.new_columns(sms_status(optional))]
    assert columns == [
        "`sms_id` String",  # ORDER BY
        "`status` LowCardinality(Nullable(String))",
        "`updated_at` DateTime",  # PARTITION BY
        "`recipient` Nullable(String)",
        "`ingested_at` DateTime DEFAULT now()",
    ]


def test_a_nested_is_made_in_one_piece() -> None:
    mapping = [{"name": "sms_id", "column_name": "p", "column_type": "Nested(a String, b Nested(c Int8))"}]
    [column] = ddl.new_columns(sms_status(mapping=mapping, create_table=None))
    assert column.sql == "`p` Array(Tuple(a String, b Array(Tuple(c Int8))))"


def test_without_create_table_the_target_is_a_plain_one() -> None:
    assert ddl.create_target(pipeline()).endswith(
        "ENGINE = MergeTree\nORDER BY tuple()\nSETTINGS non_replicated_deduplication_window = 10000"
    )


def test_a_low_cardinality_that_clickhouse_asks_twice_about_is_made_as_the_definition_says() -> None:
    config = pipeline()
    sent = config.sink.mapping[2].model_copy(update={"column_type": "LowCardinality(Nullable(DateTime))"})
    mapping = (*config.sink.mapping[:2], sent)
    statement = ddl.create_target(
        config.model_copy(update={"sink": config.sink.model_copy(update={"mapping": mapping})})
    )
    assert statement.endswith(
        "SETTINGS non_replicated_deduplication_window = 10000, allow_suspicious_low_cardinality_types = 1"
    )
    assert ddl.add_column("d", "t", ddl.NewColumn("", "n", "LowCardinality(Int8)")) == (
        "ALTER TABLE `d`.`t` ADD COLUMN IF NOT EXISTS `n` LowCardinality(Int8) "
        "SETTINGS allow_suspicious_low_cardinality_types = 1"
    )
    for usual in ("LowCardinality(String)", "LowCardinality(Nullable(FixedString(2)))", "Int8"):
        assert "SETTINGS" not in ddl.add_column("d", "t", ddl.NewColumn("", "n", usual))


def test_a_ttl_stands_between_order_and_settings() -> None:
    assert "\nORDER BY sms_id\nTTL updated_at + INTERVAL 1 DAY\nSETTINGS " in ddl.create_target(
        pipeline(order_by="sms_id", ttl="updated_at + INTERVAL 1 DAY")
    )


@pytest.mark.parametrize("engine", ["ReplicatedMergeTree('/p', 'r')", "SharedMergeTree"])
def test_replicated_tables_remember_tokens_for_a_week(engine: str) -> None:
    assert ddl.create_target(pipeline(engine=engine)).endswith(
        "SETTINGS replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800"
    )
    small = token_window.TokenWindow("d", "t", engine, 100, 3600)
    assert token_window.token_window_statement(small) == (
        "ALTER TABLE `d`.`t` MODIFY SETTING replicated_deduplication_window = 10000, "
        "replicated_deduplication_window_seconds = 604800"
    )


@pytest.mark.parametrize(
    ("blocks", "seconds", "kept"),
    [(20_000, 3600, (20_000, 604_800)), (100, 1_000_000, (10_000, 1_000_000)), (30_000, 700_000, (30_000, 700_000))],
)
def test_a_window_loses_neither_tokens_nor_time(blocks: int, seconds: int, kept: tuple[int, int]) -> None:
    window = token_window.TokenWindow("d", "t", "ReplicatedMergeTree", blocks, seconds)
    assert token_window.token_window_statement(window).endswith(
        f"replicated_deduplication_window = {kept[0]}, replicated_deduplication_window_seconds = {kept[1]}"
    )


def test_a_views_target_is_found_by_name() -> None:
    query = "CREATE MATERIALIZED VIEW a.`w 2` TO other.`my \\`t` (`x` Int32) AS SELECT x FROM a.t"
    assert view_target(query, "u", "a", "w 2", set()) == ("other", "my `t")
    query = "CREATE MATERIALIZED VIEW a.`w TO x.y \\` AS SELECT ` TO b.t (`x` Int32) AS SELECT x FROM a.t"
    assert view_target(query, "u", "a", "w TO x.y ` AS SELECT ", set()) == ("b", "t")


@pytest.mark.parametrize(("siblings", "inner"), [({".inner_id.u"}, ".inner_id.u"), ({".inner.v"}, ".inner.v")])
def test_a_view_without_a_target_writes_to_its_hidden_table(siblings: set[str], inner: str) -> None:
    query = "CREATE MATERIALIZED VIEW a.v (`x` Int32) ENGINE = MergeTree ORDER BY x AS SELECT x FROM a.t"
    assert view_target(query, "u", "a", "v", siblings) == ("a", inner)


@pytest.mark.parametrize(
    ("engine", "remedy"), [("Memory", "at_least_once"), ("Log", "MergeTree family"), ("MaterializedView", "behind it")]
)
def test_an_engine_without_tokens_is_refused_with_what_to_do(engine: str, remedy: str) -> None:
    assert remedy in token_window.unsupported_engine_reason("d", "t", engine)


def test_a_replicated_window_of_an_hour_does_not_suffice() -> None:
    assert not token_window.TokenWindow("d", "t", "ReplicatedMergeTree", 10_000, 3600).suffices
    assert token_window.TokenWindow("d", "t", "ReplicatedMergeTree", 10_000, 604_800).suffices
    assert token_window.TokenWindow("d", "t", "MergeTree", 10_000, None).suffices


def test_a_table_without_an_order_is_made_without_one() -> None:
    assert ddl.create_target(pipeline(engine="Log")).endswith("\n)\nENGINE = Log")


def test_the_target_is_made_and_altered_on_every_replica() -> None:
    how = sms_status(create_table={"engine": "ReplicatedMergeTree"}, cluster="prod")
    assert ddl.create_target(how).startswith(
        "CREATE TABLE IF NOT EXISTS `analytics`.`sms_statuses_latest` ON CLUSTER `prod`\n("
    )
    assert ddl.create_database("d", "prod") == "CREATE DATABASE IF NOT EXISTS `d` ON CLUSTER `prod`"
    window = token_window.TokenWindow("d", "t", "ReplicatedMergeTree", 0, 0)
    alter = token_window.token_window_statement(window, cluster="prod")
    assert alter.startswith("ALTER TABLE `d`.`t` ON CLUSTER `prod` MODIFY SETTING replicated_deduplication_window = ")
