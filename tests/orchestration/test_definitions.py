"""The Dagster definitions of a pipeline before anything runs, without any server."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import build_asset_keys
from glassflow_dagster.orchestration.build_definitions import build_pipeline_assets, build_pipeline_definitions
from glassflow_dagster.orchestration.checks import check_names
from glassflow_dagster.orchestration.defs.pipelines.template_vars import find_folder
from tests.definition.joins import EVENT_CLOCK
from tests.orchestration.joins import BOTH, joined_definition, joined_pipeline

SHIPPED = [
    file
    for file in sorted((Path(__file__).parents[2] / "pipelines").glob("*.yaml"))
    if load_pipeline(file, {}).join is None
]
RAW = dg.AssetKey(["sms_status", "raw_sms_status_events"])
DEDUPLICATED = dg.AssetKey(["sms_status", "deduplicated_sms_status_events"])
TABLE = dg.AssetKey(["sms_status", "sms_statuses_latest"])


def spec(definition: Path, key: dg.AssetKey) -> dg.AssetSpec:
    return build_pipeline_assets(load_pipeline(definition)).specs_by_key[key]


def graph_of(config: PipelineConfig) -> Any:
    return build_pipeline_definitions(config).resolve_asset_graph()


def test_the_code_location_loads_without_servers(definition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFLOW_PIPELINES", str(definition.parent))
    from glassflow_dagster.definitions import defs

    loaded = defs()
    dg.Definitions.validate_loadable(loaded)
    assert {found.key for found in loaded.resolve_all_asset_specs()} == {RAW, DEDUPLICATED, TABLE}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_pipeline_of_one_topic_is_a_chain_of_three_assets(file: Path) -> None:
    config = load_pipeline(file)
    graph = graph_of(config)
    raw, deduplicated, table = build_asset_keys(config).assets
    assert graph.get(deduplicated).parent_keys == {raw}
    assert graph.get(table).parent_keys == {deduplicated}
    assert {graph.get(key).group_name for key in (raw, deduplicated, table)} == {config.pipeline_id}
    names_of_checks = {"counts_agree", "dead_letters", "no_residual_duplicates", "stream_is_live"}
    assert {key.name for key in graph.asset_check_keys} == names_of_checks
    assert {key.asset_key for key in graph.asset_check_keys} == {table}


def test_a_pipeline_without_deduplication_goes_from_the_topic_to_the_table(definition: Path) -> None:
    graph = graph_of(load_pipeline(definition).model_copy(update={"transforms": ()}))
    assert graph.get(TABLE).parent_keys == {RAW}
    assert {key.name for key in graph.asset_check_keys} == {"counts_agree", "dead_letters", "stream_is_live"}


def test_a_join_brings_two_topics_together_each_deduplicated_where_it_says_so(join_definition: Path) -> None:
    graph = graph_of(load_pipeline(join_definition))
    assert lineage(graph) == {
        "raw_auction_bids": set(),
        "deduplicated_auction_bids": {"raw_auction_bids"},
        "raw_auction_lots": set(),
        "deduplicated_auction_lots": {"raw_auction_lots"},
        "joined_bids_lots": {"deduplicated_auction_bids", "deduplicated_auction_lots"},
        "bids": {"joined_bids_lots"},
    }
    checks = {"counts_agree", "dead_letters", "no_residual_duplicates", "stream_is_live", "unmatched_share"}
    assert {key.name for key in graph.asset_check_keys} == checks

    join_definition.write_text(yaml.safe_dump(joined_definition(transforms=BOTH[1:])))
    graph = graph_of(load_pipeline(join_definition))
    assert lineage(graph)["joined_bids_lots"] == {"raw_auction_bids", "deduplicated_auction_lots"}
    assert {key.name for key in graph.asset_check_keys} == checks - {"no_residual_duplicates"}


@pytest.mark.parametrize(("transforms", "checked"), [(BOTH, True), (BOTH[:1], False), (BOTH[1:], False), ([], False)])
def test_pairs_are_checked_where_both_sources_are_deduplicated(transforms: list[dict[str, Any]], checked: bool) -> None:
    config = joined_pipeline(transforms=transforms, join__match="all")
    assert ("no_residual_duplicates" in check_names(config)) is checked


def test_topics_that_dagster_could_not_tell_apart_have_assets_of_their_own() -> None:
    config = joined_pipeline(sources__0__topic="auction_bids")
    named = [key.path[-1] for key in build_asset_keys(config).assets]
    assert named[:2] == ["raw_auction_bids", "raw_auction_bids_2"]
    assert len(set(named)) == 6


def test_a_table_named_like_the_joined_stream_keeps_a_key_of_its_own() -> None:
    assert build_asset_keys(joined_pipeline(sink__table="joined_bids_lots")).table.path[-1] == "joined_bids_lots_table"


def test_the_fields_of_a_joins_topics_say_what_they_are_keys_of(join_definition: Path) -> None:
    columns = spec(join_definition, joined_key("raw_auction_lots")).metadata["dagster/column_schema"].columns
    assert {column.name: column.description for column in columns if column.description} == {
        "lot_no": "part of the deduplication key and of the join key",
        "hall": "part of the deduplication key",
    }
    join_definition.write_text(yaml.safe_dump(joined_definition(**EVENT_CLOCK)))
    columns = spec(join_definition, joined_key("raw_auction_bids")).metadata["dagster/column_schema"].columns
    assert [column.description for column in columns if column.name == "at"] == ["event time of the join"]


def test_the_joined_stream_says_in_words_what_it_joins_and_names_the_origin_of_each_field(
    join_definition: Path,
) -> None:
    found = spec(join_definition, joined_key("joined_bids_lots"))
    assert found.description == (
        "Each event of `auction.bids` (left) with the event of `auction.lots` (right) of the same key (`auction_no` "
        "= `lot_no`): the latest one that came less than 2h before it, or else the first one that came less than 20m "
        "after it, by the time at which they are read. A left event without a match makes no row, and counts as "
        "unmatched."
    )
    assert (found.metadata["join_type"], found.metadata["left_window"]) == ("inner", "20m")
    columns = [
        (column.name, column.type, column.description, column.constraints.nullable)
        for column in found.metadata["dagster/column_schema"].columns
    ]
    assert columns == [
        ("bid_id", "string", "bid_id of bids (topic auction.bids)", False),
        ("lot_no", "uint32", "auction_no of bids (topic auction.bids)", False),
        ("amount", "float", "amount of bids (topic auction.bids)", False),
        ("note", "string", "note of bids (topic auction.bids)", True),
        ("lot_title", "string", "title of lots (topic auction.lots)", False),
        ("lot_time", "float", "_timestamp of lots (topic auction.lots)", False),
    ]
    join_definition.write_text(yaml.safe_dump(joined_definition(**EVENT_CLOCK, join__type="left", join__match="all")))
    left = spec(join_definition, joined_key("joined_bids_lots"))
    assert (
        "every one that came less than 2h before it or less than 20m after it, by the times in `at` and `opened`, "
        in (left.description or "")
    )
    assert "of which one may be 2h late. A left event without a match makes a row with NULLs" in (
        left.description or ""
    )
    nullable = {c.name for c in left.metadata["dagster/column_schema"].columns if c.constraints.nullable}
    assert nullable == {"note", "lot_title", "lot_time"}


def joined_key(name: str) -> dg.AssetKey:
    return dg.AssetKey(["bids_with_lots", name])


def lineage(graph: Any) -> dict[str, set[str]]:
    keys = graph.get_all_asset_keys()
    return {key.path[-1]: {parent.path[-1] for parent in graph.get(key).parent_keys} for key in keys}


def test_a_table_named_like_its_topics_asset_keeps_a_key_of_its_own(definition: Path) -> None:
    config = load_pipeline(definition)
    sink = config.sink.model_copy(update={"table": "raw_sms_status_events"})
    named = build_asset_keys(config.model_copy(update={"sink": sink}))
    assert named.table == dg.AssetKey(["sms_status", "raw_sms_status_events_table"])


def test_the_table_shows_its_columns_its_address_and_its_definition(definition: Path) -> None:
    metadata = spec(definition, TABLE).metadata
    columns = metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == [
        ("sms_id", "String"),
        ("status", "LowCardinality(String)"),
        ("updated_at", "DateTime"),
        ("recipient", "String"),
        ("ingested_at", "DateTime"),
    ]
    assert metadata["dagster/table_name"] == "analytics.sms_statuses_latest"
    assert metadata["dagster/code_references"].code_references[0].file_path == str(definition)


def test_kinds_say_what_each_asset_is_made_of(definition: Path) -> None:
    kinds = [spec(definition, key).kinds for key in (RAW, DEDUPLICATED, TABLE)]
    assert kinds == [{"kafka"}, {"spark", "streaming"}, {"clickhouse", "table"}]


def test_no_secret_of_a_definition_reaches_its_assets(definition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFLOW_CLICKHOUSE_URL", "http://writer:hunter2@127.0.0.1:1")
    assert "hunter2" not in repr([spec(definition, key).metadata for key in (RAW, DEDUPLICATED, TABLE)])


def test_the_folder_is_the_environments_then_the_working_folders_then_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    assert find_folder(project, {}) == project / "pipelines"
    (tmp_path / "pipelines").mkdir()
    assert find_folder(project, {}) == tmp_path / "pipelines"
    (tmp_path / "named").mkdir()
    assert find_folder(project, {"GLASSFLOW_PIPELINES": "named"}) == tmp_path / "named"
    with pytest.raises(GlassflowError, match="GLASSFLOW_PIPELINES: missing is not a folder; create it"):
        find_folder(project, {"GLASSFLOW_PIPELINES": "missing"})


@pytest.mark.parametrize("length", [63, 100])
def test_a_pipeline_with_long_names_and_labels_loads(definition: Path, length: int) -> None:
    config = load_pipeline(definition)
    labels = config.metadata.model_copy(update={"tags": ("l" * length, "é")})
    long = config.model_copy(update={"pipeline_id": "p" * length, "metadata": labels})
    assert graph_of(long).get_all_asset_keys()


def test_a_folder_that_is_none_is_told_without_dagsters_own_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassflow_dagster.definitions import defs

    monkeypatch.setenv("GLASSFLOW_PIPELINES", str(tmp_path / "missing"))
    with pytest.raises(GlassflowError, match=r"^GLASSFLOW_PIPELINES: .*missing is not a folder; create it"):
        defs()
