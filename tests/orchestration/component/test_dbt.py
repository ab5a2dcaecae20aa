"""The table of a pipeline as the source of a dbt project: both are one node of the lineage.

`dbt_project/target/manifest.json` was written by `dbt parse` (dbt-core 1.11, dbt-clickhouse 1.10), less its macros.
"""

from pathlib import Path

import dagster as dg
from dagster_dbt import DbtCliResource, dbt_assets

from glassflow_dagster.definition.load import load_written
from glassflow_dagster.orchestration.build_definitions import build_pipeline_assets
from glassflow_dagster.orchestration.options import Node, PipelineOptions
from tests.orchestration.component.test_pipeline_folder import orders

MANIFEST = Path(__file__).parent / "dbt_project" / "target" / "manifest.json"
TABLE = dg.AssetKey(["shop", "orders_clean"])
MODEL = dg.AssetKey(["revenue"])


@dbt_assets(manifest=MANIFEST)
def models(context: dg.AssetExecutionContext, dbt: DbtCliResource):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Run dbt; never called here."""
    yield from dbt.cli(["build"], context=context).stream()


def parents(options: PipelineOptions) -> set[dg.AssetKey]:
    """Return the assets that the table is computed from, where the table is a source of the dbt model."""
    pipeline = build_pipeline_assets(load_written(orders()), options)
    # No model is run, so dbt is not needed.
    graph = dg.Definitions(assets=[pipeline, models], resources={"dbt": object()}).resolve_asset_graph()
    assert graph.get(MODEL).parent_keys == {TABLE}
    assert graph.get(TABLE).is_materializable
    return set(graph.get(TABLE).parent_keys)


def test_a_prefix_makes_the_table_the_source_of_the_dbt_project() -> None:
    expected = {dg.AssetKey(["orders_pipeline", "deduplicated_orders"])}
    assert parents(PipelineOptions(table_key_prefix=("shop",))) == expected


def test_so_does_a_translation() -> None:
    def as_source(spec: dg.AssetSpec, node: Node) -> dg.AssetSpec:
        return spec.replace_attributes(key=[node.database, node.table]) if node.kind == "table" else spec

    assert parents(PipelineOptions(translation=as_source)) == {dg.AssetKey(["orders_pipeline", "deduplicated_orders"])}
