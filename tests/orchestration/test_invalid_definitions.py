"""Definitions with errors: each becomes one asset that fails with its errors, and all others load."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.orchestration.build_definitions import (
    Orchestration,
    build_folder_definitions,
    build_pipeline_definitions,
)
from glassflow_dagster.orchestration.options import PipelineOptions

TABLE = dg.AssetKey(["sms_status", "sms_statuses_latest"])


def load(folder: Path) -> dg.Definitions:
    """Load a folder as a code location does; raises what Dagster cannot load."""
    defs = build_folder_definitions(folder)
    dg.Definitions.validate_loadable(defs)
    return defs


def failing(defs: dg.Definitions) -> dict[str, dg.AssetsDefinition]:
    """Return the assets that stand for invalid files, by name."""
    found = [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition) and len(asset.keys) == 1]
    return {asset.key.to_user_string(): asset for asset in found}


def failure(defs: dg.Definitions, name: str) -> dict[str, Any]:
    """Return the error of materializing an invalid file's asset."""
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[dg.AssetKey([name])], raise_on_error=False
    )
    assert not result.success
    [event] = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return {"text": data.description, **{key: value.value for key, value in data.metadata.items()}}


def test_a_wrong_file_is_one_asset_that_fails_with_its_mistakes(definition: Path) -> None:
    text = definition.read_text().replace("time_window: 5m", "time_windowx: 5m").replace("table: ", "tabel: ")
    wrong = definition.with_name("orders-2.yaml")
    wrong.write_text(text)
    defs = load(definition.parent)
    assert TABLE in defs.resolve_asset_graph().get_all_asset_keys()
    [asset] = failing(defs).values()
    assert asset.key == dg.AssetKey(["orders_2"])
    said = failure(defs, "orders_2")
    lines = said["text"].splitlines()
    assert len(lines) == 4
    assert f"{wrong}: transforms[0].config.time_windowx: unknown key; remove it or check its spelling" in lines
    assert said["problems"] == f"```\n{said['text']}\n```"
    spec = asset.specs_by_key[asset.key]
    assert said["text"] in (spec.description or "")
    assert spec.group_name == "orders_2"
    assert spec.metadata["dagster/code_references"].code_references[0].file_path == str(wrong)


def test_whatever_is_wrong_with_a_file_the_others_load(definition: Path) -> None:
    folder, text = definition.parent, definition.read_text()
    (folder / "is a folder.yaml").mkdir()
    (folder / "no_utf8.yaml").write_bytes(b"\xff\xfe")
    (folder / "no_yaml.yaml").write_text("a: [")
    (folder / "no_date.yaml").write_text("a: 2024-99-99")
    (folder / "list.json").write_text("[]")
    (folder / "list.yaml").write_text("[]")
    (folder / "gone.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / ".#editors.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "other_name.yaml").write_text(text)
    (folder / "every.yaml").write_text(
        text.replace("pipeline_id: sms_status", "pipeline_id: every").replace("table: sms", "table: other_sms")
        + "checks: {every: '61 * * * *'}\n"
    )
    defs = load(folder)
    assert TABLE in defs.resolve_asset_graph().get_all_asset_keys()
    expected = {
        "is_a_folder": "cannot be read",
        "no_utf8": "cannot be read",
        "no_yaml": "is neither YAML nor JSON",
        "no_date": "is neither YAML nor JSON",
        "list": "list.json: is not a pipeline definition",
        "list_yaml": "list.yaml: is not a pipeline definition",
        "gone": "no such file",
        "other_name": "pipeline_id: 'sms_status' is not the file's name; rename the file to sms_status.yaml",
        "every": "checks.every: '61 * * * *' is not a cron schedule; write one such as",
    }
    assert set(failing(defs)) == set(expected)
    for name, reason in expected.items():
        assert reason in failure(defs, name)["text"]


@pytest.mark.parametrize(
    ("file", "pipeline", "reason"),
    [
        ("sms_status.yml", "sms_status", "'sms_status' is also defined in {definition}; keep one of the files"),
        ("sms-status.yaml", "sms-status", "'sms-status' has the same name in Dagster as the pipeline in {definition}"),
    ],
)
def test_pipelines_that_dagster_cannot_tell_apart_are_both_refused(
    definition: Path, file: str, pipeline: str, reason: str
) -> None:
    other = definition.with_name(file)
    other.write_text(definition.read_text().replace("pipeline_id: sms_status", f"pipeline_id: {pipeline}"))
    defs = load(definition.parent)
    first, second = failing(defs)
    assert (first, second) == ("sms_status", "sms_status_" + ("yml" if file.endswith("yml") else "yaml"))
    texts = [failure(defs, name)["text"] for name in (first, second)]
    assert any(reason.format(definition=definition) in text for text in texts)
    assert any(str(other) in text.split(": ", 1)[1] for text in texts)


def sharing(definition: Path, file: str, *, shared: bool) -> Path:
    """Write a copy of a definition, of another pipeline; return its file. shared: both say so."""
    other = definition.with_name(file)
    text = definition.read_text()
    if shared:
        text = text.replace("sink:\n", "sink:\n  shared_table: true\n")
        definition.write_text(text)
    other.write_text(text.replace("pipeline_id: sms_status", f"pipeline_id: {other.stem}"))
    return other


def test_pipelines_that_write_to_one_table_are_both_refused(definition: Path) -> None:
    other = sharing(definition, "again.yaml", shared=False)
    defs = load(definition.parent)
    assert set(failing(defs)) == {"sms_status", "again"}
    text = failure(defs, "again")["text"]
    assert text.startswith(f"{other}: sink.table: analytics.sms_statuses_latest is also written by pipeline 'sms_st")
    assert f"pipeline 'again' ({other}); name another table, or" in failure(defs, "sms_status")["text"]
    with pytest.raises(DefinitionError, match="is also written by pipeline 'again'"):
        build_pipeline_definitions([load_pipeline(definition), load_pipeline(other)])


def test_pipelines_that_say_that_they_share_a_table_are_loaded(definition: Path) -> None:
    sharing(definition, "again.yaml", shared=True)
    defs = load(definition.parent)
    assert {TABLE, dg.AssetKey(["again", TABLE.path[-1]])} <= defs.resolve_asset_graph().get_all_asset_keys()


def test_a_shared_table_with_one_key_is_an_error_of_the_files_and_not_of_the_folder(definition: Path) -> None:
    sharing(definition, "again.yaml", shared=True)
    (definition.parent / "alone.yaml").write_text(
        definition.read_text()
        .replace("pipeline_id: sms_status", "pipeline_id: alone")
        .replace("table: sms", "table: a_sms")
    )
    options = PipelineOptions(table_key_prefix=("analytics",))
    defs = build_folder_definitions(definition.parent, Orchestration(options=options))
    dg.Definitions.validate_loadable(defs)
    assert dg.AssetKey(["analytics", "a_sms_statuses_latest"]) in defs.resolve_asset_graph().get_all_asset_keys()
    text = failure(defs, "again")["text"]
    assert "asset analytics/sms_statuses_latest is one of pipeline 'sms_status', too" in text


def test_a_broken_file_is_run_once_and_once_more_when_its_mistakes_change(definition: Path) -> None:
    instance = dg.DagsterInstance.ephemeral()
    definition.write_text("a: [")
    defs = load(definition.parent)
    asset = dg.AssetKey(["sms_status"])
    names = [sensor.name for sensor in defs.sensors or ()]
    assert names == ["glassflow__alerts", "glassflow__run_failures", "glassflow__definition_errors"]
    requested = []
    cursor = None
    for text in ("a: [", "a: [", "[]", "[]"):
        definition.write_text(text)
        found = dg.evaluate_automation_conditions(defs=load(definition.parent), instance=instance, cursor=cursor)
        cursor = found.cursor
        requested.append(found.get_num_requested(asset))
    assert requested == [1, 0, 1, 0]


def test_without_mistakes_there_is_nothing_of_it(definition: Path) -> None:
    defs = load(definition.parent)
    assert failing(defs) == {}
    assert "glassflow__definition_errors" not in [sensor.name for sensor in defs.sensors or ()]
