"""The bookkeeping tables as DDL text and as Arrow blocks, without a server."""

import re

import pyarrow as pa
import pytest

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import PURGES
from glassflow_dagster.stores.bookkeeping.dead_letter_table import RAW_SCHEMA
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.losses import LOSSES
from glassflow_dagster.stores.bookkeeping.schema import BookkeepingTable, Column
from glassflow_dagster.stores.bookkeeping.tables import TABLES, add_columns, add_ttl, create_table


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_has_a_token_window(table: BookkeepingTable) -> None:
    statement = create_table("d", table)
    assert "ENGINE = MergeTree ORDER BY (pipeline_id" in statement
    assert statement.endswith("SETTINGS non_replicated_deduplication_window = 10000")


def test_a_table_is_made_on_every_replica() -> None:
    statement = create_table("d", LEDGER, "ReplicatedMergeTree", "prod")
    assert statement.startswith("CREATE TABLE IF NOT EXISTS `d`.`glassflow_ledger` ON CLUSTER `prod` (")
    assert " ENGINE = ReplicatedMergeTree ORDER BY " in statement
    assert "SETTINGS replicated_deduplication_window = " in statement


def test_statements_come_from_the_columns() -> None:
    assert create_table("d", PURGES) == (
        "CREATE TABLE IF NOT EXISTS `d`.`glassflow_purges` (`pipeline_id` String, `checkpoint_id` UUID, "
        "`batch_time` DateTime64(3, 'UTC'), `topic` LowCardinality(String), `partition` UInt32, `offset` UInt64, "
        "`item` Int32 DEFAULT -1, `only_table` LowCardinality(String), "
        "`expires_at` DateTime('UTC') DEFAULT toDateTime(4294967295, 'UTC'), "
        "`inserted_at` DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = MergeTree "
        "ORDER BY (pipeline_id, checkpoint_id, topic, partition, offset) TTL expires_at "
        "SETTINGS non_replicated_deduplication_window = 10000"
    )
    assert add_columns("d", LOSSES, LOSSES.columns[-2:]) == (
        "ALTER TABLE `d`.`glassflow_losses` ADD COLUMN IF NOT EXISTS `until` UInt64, "
        "ADD COLUMN IF NOT EXISTS `waiting` UInt64"
    )
    assert add_ttl("d", PURGES).endswith(" MODIFY TTL expires_at SETTINGS materialize_ttl_after_modify = 0")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_blocks_have_the_columns_of_the_statement_that_creates_their_table(table: BookkeepingTable) -> None:
    columns = create_table("d", table).partition(" (")[2].partition(") ENGINE")[0]
    while "(" in columns:
        columns = re.sub(r"\([^()]*\)", "", columns)  # the parameters of types and default values
    # The server fills inserted_at.
    assert [*table.schema.names, "inserted_at"] == re.findall(r"`(\w+)` ", columns)


def test_blocks_have_arrow_types_that_follow_from_the_columns() -> None:
    offsets = pa.struct(
        [("topic", pa.string()), ("partition", pa.uint32()), ("from", pa.uint64()), ("until", pa.uint64())]
    )
    assert LEDGER.schema.field("offsets").type == pa.list_(offsets)
    assert LEDGER.schema.field("batch_time").type == pa.timestamp("ms", "UTC")
    assert LEDGER.schema.field("dead_letters_expire_at").type == pa.uint32()


def test_what_kafka_has_as_bytes_stays_bytes() -> None:
    assert RAW_SCHEMA.field("key").type == RAW_SCHEMA.field("value").type == pa.binary()
    assert RAW_SCHEMA.field("headers").type.value_type.field("value").type == pa.binary()


def test_a_value_of_a_statement_has_the_type_without_its_wrappers() -> None:
    assert Column("reason", "LowCardinality(String)").parameter == "{reason:String}"
