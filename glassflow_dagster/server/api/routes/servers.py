"""The requests on Kafka and ClickHouse: connections, topics, records, databases, tables, columns, proposals."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.connections import OnClickHouse, OnKafka, asked, parsed, registry_of
from glassflow_dagster.server.api.proposal import GivenServers, propose
from glassflow_dagster.server.api.services import Given
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.names import list_columns, list_databases, list_tables
from glassflow_dagster.stores.dead_letters.store import readable
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.samples import sample_newest, sample_records
from glassflow_dagster.stores.kafka.topic_list import list_topics

router = APIRouter(prefix="/api/v1", tags=["servers"])
_READ_SECONDS = 10.0
_MOST_RECORDS, _MOST_MESSAGES = 100, 10_000


class OfTopic(OnKafka):
    """Records of a topic."""

    topic: str = Field(min_length=1, max_length=249)
    limit: int = Field(default=10, ge=1, le=_MOST_RECORDS)


class OfDatabase(OnClickHouse):
    """A database."""

    database: str = Field(min_length=1)


class OfTable(OfDatabase):
    """A table."""

    table: str = Field(min_length=1)


class ForTopic(OnKafka):
    """A topic for which a definition is proposed."""

    topic: str = Field(min_length=1, max_length=249)
    new_pipeline_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{4,99}$")
    clickhouse_connection_params: dict[str, Any] | None = None
    schema_registry: dict[str, Any] | None = None
    messages: int = Field(default=1000, ge=1, le=_MOST_MESSAGES)


@router.post("/kafka/test-connection")
async def test_kafka(body: OnKafka, services: Given) -> dict[str, Any]:
    """Say whether the brokers answer; `message` is the reason why not, and what to do."""

    def test() -> dict[str, Any]:
        connection = body.connection(services.catalog)
        try:
            topics = list_topics(connection)
        except GlassflowError as error:
            return {"success": False, "message": str(error)}
        return {"success": True, "message": f"{len(topics):,} topics"}

    return await services.slow.run(test)


@router.post("/kafka/topics")
async def get_topics(body: OnKafka, services: Given) -> list[dict[str, Any]]:
    """List the topics, with the number of their partitions."""

    def ask() -> list[dict[str, Any]]:
        connection = body.connection(services.catalog)
        topics = asked(lambda: list_topics(connection))
        return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]

    return await services.slow.run(ask)


@router.post("/kafka/events")
async def get_events(body: OfTopic, services: Given) -> list[dict[str, Any]]:
    """Read some of the newest records of a topic; nothing is committed."""

    def ask() -> list[dict[str, Any]]:
        connection = body.connection(services.catalog)

        def read() -> tuple[Record, ...]:
            found = sample_newest(connection, body.topic, body.limit, _READ_SECONDS)
            # It says why there is none: the topic is missing, or empty; or only its beginning has records.
            return found or sample_records(connection, body.topic, body.limit, _READ_SECONDS).records

        return [_record(record) for record in asked(read)[-body.limit :]]

    return await services.slow.run(ask)


@router.post("/clickhouse/test-connection")
async def test_clickhouse(body: OnClickHouse, services: Given) -> dict[str, Any]:
    """Say whether the server accepts the user; `message` is the reason why not, and what to do."""

    def test() -> dict[str, Any]:
        connection = body.connection(services.catalog)
        try:
            with connect(connection) as client:
                return {"success": True, "message": f"ClickHouse {client.server_version}"}
        except GlassflowError as error:
            return {"success": False, "message": str(error)}

    return await services.slow.run(test)


@router.post("/clickhouse/databases")
async def get_databases(body: OnClickHouse, services: Given) -> list[str]:
    """List the databases."""

    def ask() -> list[str]:
        connection = body.connection(services.catalog)
        with connect(connection) as client:
            return list_databases(client)

    return await services.slow.run(lambda: asked(ask))


@router.post("/clickhouse/tables")
async def get_tables(body: OfDatabase, services: Given) -> list[dict[str, Any]]:
    """List the tables of a database."""

    def ask() -> list[dict[str, Any]]:
        with connect(body.connection(services.catalog)) as client:
            return list_tables(client, body.database)

    return await services.slow.run(lambda: asked(ask))


@router.post("/clickhouse/columns")
async def get_columns(body: OfTable, services: Given) -> list[dict[str, Any]]:
    """List the columns of a table; empty where there is no such table."""

    def ask() -> list[dict[str, Any]]:
        with connect(body.connection(services.catalog)) as client:
            return list_columns(client, body.database, body.table)

    return await services.slow.run(lambda: asked(ask))


@router.post("/infer")
async def infer(body: ForTopic, services: Given) -> dict[str, Any]:
    """Read messages of a topic and propose a definition, whose secrets are to be filled in; nothing is written."""

    def ask() -> dict[str, Any]:
        sink = body.clickhouse_connection_params
        if sink is not None:
            parsed(ClickHouseConnection, sink, "clickhouse_connection_params")
        servers = GivenServers(
            connection=body.connection(services.catalog), given_registry=registry_of(body.schema_registry), sink=sink
        )
        return propose(body.topic, servers, body.new_pipeline_id, body.messages, _READ_SECONDS)

    return await services.slow.run(lambda: asked(ask))


def _record(record: Record) -> dict[str, Any]:
    """Return a record as values of JSON; bytes as text if they are UTF-8, else {"base64": ...}."""
    return {
        "partition": record.partition, "offset": record.offset,
        "key": readable(record.key), "value": readable(record.value),
        "headers": [[name, readable(value)] for name, value in record.headers],
    }  # fmt: skip
