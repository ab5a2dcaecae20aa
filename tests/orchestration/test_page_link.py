"""Assets link to the page of their pipeline where the environment says where the page is."""

import pytest

from glassflow_dagster.definition.load import load_written
from glassflow_dagster.orchestration.options import PipelineOptions
from glassflow_dagster.orchestration.page_link import PAGE_URL
from glassflow_dagster.orchestration.specs import build_pipeline_specs
from tests.server.api.conftest import deduplicating


def test_each_asset_links_to_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGE_URL, "http://127.0.0.1:8081/")
    specs = build_pipeline_specs(load_written(deduplicating()), PipelineOptions()).specs
    links = {spec.metadata["glassflow/page"].url for spec in specs}
    assert links == {"http://127.0.0.1:8081/ui/pipelines/orders-clean"}


def test_without_a_page_there_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PAGE_URL, raising=False)
    specs = build_pipeline_specs(load_written(deduplicating()), PipelineOptions()).specs
    assert all("glassflow/page" not in spec.metadata for spec in specs)
