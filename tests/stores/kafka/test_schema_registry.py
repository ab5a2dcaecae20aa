"""What `infer` reads of a schema registry; what a driver reads is tested in tests/stream/stages/test_registry.py."""

from collections.abc import Iterator

import pytest

from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.schema_registry import MOST_BYTES, RegistryReader
from tests.servers.registry import Registry, serving

EVENT = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


def reader(registry: Registry) -> RegistryReader:
    return RegistryReader(SchemaRegistry(url=registry.url))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (" " * (MOST_BYTES + 1), "answers with more than 16 MiB, or 500 references, for one schema"),
        ("[" * 100_000, "answers without a schema; is it a schema registry"),
        ("no JSON", "answers without a schema; is it a schema registry"),
    ],
)
def test_an_answer_that_is_no_schema_is_said_in_one_line(registry: Registry, answer: str, problem: str) -> None:
    registry.failures = [(200, answer)]
    with pytest.raises(GlassflowError, match=problem):
        reader(registry).schema("1")


def test_a_schema_does_not_refer_to_endlessly_many_others(registry: Registry) -> None:
    chain: list[dict[str, object]] = []
    for number in range(600):
        registry.register(f"s{number}", f'"{number}"', chain)
        chain = [{"name": "n", "subject": f"s{number}", "version": 1}]
    with pytest.raises(GlassflowError, match="or 500 references, for one schema"):
        reader(registry).schema("600")
    assert reader(registry).schema("3") is not None
