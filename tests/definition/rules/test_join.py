"""Joins in definitions: their meaning, and the one-line error for each mistake."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.load import convert_definition, load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.nullable_names import WhyNull, nullable_names
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.definition.rules.pipeline import problems
from glassflow_dagster.definition.stages import FilterStage, plan_stages
from tests.definition.changes import changed
from tests.definition.joins import EVENT_CLOCK, joined

PROJECT = Path(__file__).parents[3]


def load(**changes: Any) -> PipelineConfig:
    config = PipelineConfig.model_validate(joined(**changes))
    assert list(problems(config)) == []
    return config


def write(folder: Path, definition: dict[str, Any]) -> Path:
    file = folder / "bids.yaml"
    file.write_text(yaml.safe_dump(definition))
    return file


def keep(source_id: str, expression: str) -> dict[str, Any]:
    """Return a filter that keeps events for which the expression is true."""
    return {"type": "filter", "source_id": source_id, "config": {"expression": expression}}


def make(source_id: str, **outputs: str) -> dict[str, Any]:
    """Return a stateless transform with outputs of type string: name -> expression."""
    made = [{"output_name": name, "expression": e, "output_type": "string"} for name, e in outputs.items()]
    return {"type": "stateless", "source_id": source_id, "config": {"transforms": made}}


def test_left_and_right_do_not_depend_on_the_order_of_the_sources() -> None:
    config = load()
    assert [source.source_id for source in config.inputs] == ["bids", "lots"]
    assert config.source is config.inputs[0]
    assert config.topics == ("auction.bids", "auction.lots", "bids-with-lots.glassflow-replay")
    assert config.connection.brokers == ("k:9092",)
    assert [source.start for source in config.inputs] == ["latest", "earliest"]


def test_glassflows_own_fragment_is_an_inner_join_of_the_latest_on_the_processing_clock() -> None:
    join = load().join
    assert join
    assert (join.id, join.type, join.match, join.clock, join.keeps_unmatched) == (
        "join", "temporal", "latest", "processing", False,
    )  # fmt: skip
    assert (join.left_source.key_fields, join.right_source.key_fields) == (("auction_no",), ("lot_no",))
    assert [side.time_window for side in join.sides] == [timedelta(minutes=20), timedelta(hours=2)]
    assert [output.joined_name for output in join.output_fields] == [
        "bid_id", "lot_no", "amount", "note", "lot_title", "lot_time",
    ]  # fmt: skip


@pytest.mark.parametrize("nothing", [None, ""])
def test_empty_values_mean_their_defaults(nothing: str | None) -> None:
    definition = joined()
    definition["join"]["type"] = definition["join"]["output_fields"][2]["output_name"] = nothing
    definition["join"]["left_source"]["keys"] = None
    assert PipelineConfig.model_validate(definition).join == load().join


def test_the_event_clock_is_as_late_as_the_longer_window_unless_told() -> None:
    join = load(**EVENT_CLOCK).join
    assert join
    assert (join.lateness, join.idle_timeout) == (timedelta(hours=2), timedelta(minutes=5))
    told = {"join__allowed_lateness": "0s", "join__idle_timeout": "10s", "join__right_source__event_time_unit": "ms"}
    join = load(**EVENT_CLOCK, **told).join
    assert join
    assert (join.lateness, join.idle_timeout) == (timedelta(), timedelta(seconds=10))
    assert [side.time_unit for side in join.sides] == ["s", "ms"]


def test_a_join_that_is_switched_off_is_none_whatever_else_it_holds(tmp_path: Path) -> None:
    for off in ({"enabled": False, "left_source": {"nonsense": 1}}, {}, {"enabled": "${JOIN}", "type": "sideways"}):
        definition = joined(join=off, sources__0=None, transforms=[], sink__mapping=[
            {"name": "bid_id", "column_name": "bid_id", "column_type": "UUID"},
        ])  # fmt: skip
        config = load_pipeline(write(tmp_path, definition), {"JOIN": "false"})
        assert config.join is None
        assert config.inputs == (config.source,)
        assert "join" not in config.model_dump()


def test_a_join_is_in_the_digest_and_survives_a_dump() -> None:
    config, all_pairs = load(), load(join__match="all")
    assert config.digest != all_pairs.digest
    assert config.fingerprint != all_pairs.fingerprint
    for one in (config, all_pairs, load(**EVENT_CLOCK, join__allowed_lateness="10m")):
        assert PipelineConfig.model_validate(one.model_dump(mode="json")).join == one.join


def test_deduplication_and_needed_fields_are_those_of_each_source() -> None:
    registry = {"sources__1__schema_registry": {"url": "http://r"}}
    config = load(**registry)
    bids, lots = config.inputs
    dedup = config.dedup_of(bids)
    assert dedup
    assert dedup.key_fields == ("bid_id",)
    assert config.dedup_of(lots) is None
    # A schema lists the fields; only the deduplication key is required, a join key is not.
    assert [field.name for field in config.fields_of(bids) if field.required] == ["bid_id"]
    assert all(field.required for field in config.fields_of(lots))


def test_keys_may_have_several_parts_of_other_names_and_kinds_of_numbers() -> None:
    parts = {
        "join__left_source__key": None,
        "join__left_source__keys": ["hall", "auction_no"],
        "join__right_source__key": None,
        "join__right_source__keys": ["hall", "lot_no"],
    }
    join = load(**parts).join
    assert join
    assert [side.key_fields for side in join.sides] == [("hall", "auction_no"), ("hall", "lot_no")]


def test_filters_stand_before_the_join_and_anything_but_dedup_behind_it() -> None:
    transforms = [
        keep("join", "amount > 10.0"),
        keep("lots", "_partition == 0"),
        make("join", bid_id="bid_id", title="upper(lot_title)"),
        keep("bids", "amount > 0.0"),
        keep("join", "title != ''"),
        keep("bids", "note != nil"),
    ]
    config = PipelineConfig.model_validate(joined(transforms=transforms))
    stages = plan_stages(config)
    assert stages.problems == ()
    assert {side: [stage.condition.text for stage in found] for side, found in stages.before.items()} == {
        "bids": ["amount > 0.0", "note != nil"],
        "lots": ["_partition == 0"],
    }
    assert [step.condition.text if isinstance(step, FilterStage) else len(step.outputs) for step in stages.steps] == [
        "amount > 10.0", 2, "title != ''",
    ]  # fmt: skip
    assert stages.mappable == {"bid_id": "string", "title": "string", "_batch_time": "float"}


def test_behind_the_join_there_are_the_output_names_and_the_batch_time() -> None:
    assert plan_stages(load()).mappable == {
        "_batch_time": "float", "bid_id": "string", "lot_no": "uint", "amount": "float", "note": "string",
        "lot_title": "string", "lot_time": "float",
    }  # fmt: skip


def test_behind_the_join_the_list_is_the_order() -> None:
    stages = plan_stages(
        load(
            transforms=[make("join", bid_id="bid_id", amount="toString(amount)"), keep("join", "amount != '0'")],
            sink__mapping=[{"name": "bid_id", "column_name": "bid_id", "column_type": "UUID"}],
        )
    )
    assert [type(step).__name__ for step in stages.steps] == ["TransformStage", "FilterStage"]
    assert stages.warnings == ()


def test_a_misspelt_output_type_behind_the_join_is_a_warning() -> None:
    made = changed(make("join", bid_id="bid_id"), config__transforms__0__output_type="strnig")
    mapping = [{"name": "bid_id", "column_name": "bid_id", "column_type": "UUID"}]
    (warning,) = plan_stages(load(transforms=[made], sink__mapping=mapping)).warnings
    assert warning.endswith("'strnig' converts nothing; did you mean 'string'?")


def test_what_an_inner_join_lacks_is_what_its_sources_lack() -> None:
    both = [
        {"source_id": "bids", "name": "hall"},
        {"source_id": "bids", "name": "_key"},
        {"source_id": "bids", "name": "note", "output_name": "remark"},
        {"source_id": "lots", "name": "title"},
    ]
    mapping = [{"name": "remark", "column_name": "remark", "column_type": "String"}]
    lacking = {"hall": WhyNull.OPTIONAL, "_key": WhyNull.NO_KEY, "remark": WhyNull.OPTIONAL}
    assert nullable_names(load(join__output_fields=both, sink__mapping=mapping)) == lacking
    by_hall = {"join__left_source__key": "hall", "join__right_source__key": "hall"}
    without_null_keys = {name: why for name, why in lacking.items() if name != "hall"}
    assert nullable_names(load(join__output_fields=both, sink__mapping=mapping, **by_hall)) == without_null_keys


def test_a_left_join_lacks_all_of_the_right_source_at_times_and_a_transform_passes_that_on() -> None:
    default = {"sources__0__schema_fields__2__default": "?"}
    assert nullable_names(load(join__type="left", **default)) == {
        "note": WhyNull.OPTIONAL, "lot_title": WhyNull.NO_MATCH, "lot_time": WhyNull.NO_MATCH,
    }  # fmt: skip
    made = make("join", bid_id="bid_id", title="lot_title", note="note ?? ''")
    mapping = [{"name": "title", "column_name": "title", "column_type": "String"}]
    assert nullable_names(load(join__type="left", transforms=[made], sink__mapping=mapping)) == {
        "title": WhyNull.NO_MATCH
    }


STATELESS = make("lots", title="title")
EVENT_DEDUP = {"key": "bid_id", "time_window": "1h", "clock": "event", "event_time": "at"}
MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    ({"join": None, "transforms": [], "sink__mapping": [
        {"name": "title", "column_name": "title", "column_type": "String"}]},
     ["sources: two sources need a join; add `join`, or keep one source"]),
    ({"sources__2": {**joined()["sources"][0], "source_id": "more", "topic": "more"}},
     ["sources: a join takes two sources, and there are 3; keep two"]),
    ({"sources__0": None},
     ["sources: a join needs two sources, and there is one; add one, or remove the join",
      "join.right_source.source_id: no source is called 'lots'; use one of bids"]),
    ({"sources__1__topic": "auction.lots"},
     ["sources[1].topic: 'auction.lots' is the topic of sources[0] too; a join needs two topics"]),
    ({"sources__1__connection_params": {"brokers": ["other:1"], "protocol": "SASL_SSL",
                                        "mechanism": "PLAIN", "username": "u", "password": "s3cr3t"}},
     [f"sources[1].connection_params.{name}: differs from that of sources[0]; both use one connection, so"
      for name in ("brokers", "protocol", "mechanism", "username", "password")]),
    ({"sources__1__isolation": "read_uncommitted"}, ["sources[1].isolation: differs from that of sources[0]; both"]),
    ({"join__enabled": None}, ["join.enabled: is missing; add it"]),
    ({"join__enabled": "perhaps"}, ["join.enabled: "]),
    ({"join__type": "outer"}, ["join.type: must be 'temporal', 'inner' or 'left'"]),
    ({"join__match": "first"}, ["join.match: must be 'latest' or 'all'"]),
    ({"join__clock": "wall"}, ["join.clock: must be 'processing' or 'event'"]),
    ({"join__sources": []}, ["join.sources: unknown key; remove it or check its spelling"]),
    ({"join__id": "bids"}, ["join.id: 'bids' is the name of a source; choose another"]),
    ({"join__left_source": None}, ["join.left_source: is missing; add it"]),
    ({"join__left_source__source_id": "bid", "join__output_fields": [{"source_id": "lots", "name": "title"}],
      "sink__mapping": [{"name": "title", "column_name": "title", "column_type": "String"}]},
     ["join.left_source.source_id: no source is called 'bid'; did you mean 'bids'?"]),
    ({"join__right_source__source_id": "bids", "join__right_source__key": "auction_no"},
     ["join.right_source.source_id: is the left source too; name the other one",
      "join.output_fields[4].source_id: 'lots' is not a source of the join; ",
      "join.output_fields[5].source_id: 'lots' is not a source of the join; "]),
    ({"join__left_source__key": None}, ["join.left_source.key: name the key once: either key (one field) or keys"]),
    ({"join__left_source__key": ""}, ["join.left_source.key: name the key once"]),
    ({"join__left_source__keys": ["hall"]}, ["join.left_source.key: name the key once"]),
    ({"join__left_source__key": "auction"},
     ["join.left_source.key: 'auction' is not in schema_fields; did you mean 'auction_no'?"]),
    ({"join__right_source__key": "photos"},
     ["join.right_source.key: 'photos' is array; a key is a string, number or bool"]),
    ({"join__right_source__key": "title"},
     ["join.right_source.key: 'title' is string, but 'auction_no' of the left source is uint, so they"]),
    ({"join__right_source__key": None, "join__right_source__keys": ["lot_no", "hall"]},
     ["join.right_source.keys: has 2 parts, and the left source's 1; name as many, in the same order"]),
    ({"join__right_source__key": None, "join__right_source__keys": ["hall", "lot_no"],
      "join__left_source__key": None, "join__left_source__keys": ["auction_no", "hal"]},
     ["join.left_source.keys[1]: 'hal' is not in schema_fields; did you mean 'hall'?",
      "join.right_source.keys[0]: 'hall' is string, but 'auction_no' of the left source is uint"]),
    ({"join__left_source__time_window": "0s"}, ["join.left_source.time_window: must be greater than zero"]),
    ({"join__left_source__time_window": None}, ["join.left_source.time_window: is missing; add it"]),
    ({"join__right_source__time_window": "8d"}, ["join.right_source.time_window: is longer than 7 days; choose 7d or"]),
    ({"join__allowed_lateness": "1m"},
     ["join.allowed_lateness: applies to clock: event only; add that, or remove it"]),
    ({"join__idle_timeout": "5m"}, ["join.idle_timeout: applies to clock: event only; add that, or remove it"]),
    ({"join__left_source__event_time": "at", "join__right_source__event_time_unit": "s"},
     ["join.left_source.event_time: applies to clock: event only; add that, or remove it",
      "join.right_source.event_time_unit: applies to clock: event only"]),
    ({"join__clock": "event"},
     ["join.left_source.event_time: is needed for clock: event; name the field with the time of the event",
      "join.right_source.event_time: is needed for clock: event; name"]),
    ({**EVENT_CLOCK, "join__left_source__event_time": "note", "join__right_source__event_time": "photos"},
     ["join.left_source.event_time: 'note' is optional (required: false, or a default); a time must be present",
      "join.right_source.event_time: 'photos' is array; a time is a string or a number"]),
    ({**EVENT_CLOCK, "join__left_source__event_time_unit": "ms"},
     ["join.left_source.event_time_unit: 'at' is a string, which has no unit; remove it"]),
    ({**EVENT_CLOCK, "join__right_source__event_time": "open"},
     ["join.right_source.event_time: 'open' is not in schema_fields; did you mean 'opened'?"]),
    ({**EVENT_CLOCK, "join__allowed_lateness": "8d"}, ["join.allowed_lateness: is longer than 7 days; choose 7d or"]),
    ({**EVENT_CLOCK, "join__idle_timeout": "0s"}, ["join.idle_timeout: must be greater than zero"]),
    ({"join__output_fields": []}, ["join.output_fields: "]),
    ({"join__output_fields": None}, ["join.output_fields: is missing; add it"]),
    ({"join__output_fields__0__source_id": "bid"},
     ["join.output_fields[0].source_id: 'bid' is not a source of the join; did you mean 'bids'?"]),
    ({"join__output_fields__4__name": "titel"},
     ["join.output_fields[4].name: 'titel' is not in schema_fields of source 'lots'; did you mean 'title'?"]),
    ({"join__output_fields__4__output_name": "bid_id", "sink__mapping__4": None},
     ["join.output_fields[4].output_name: 'bid_id' is the name of join.output_fields[0] too; give one of"]),
    ({"join__output_fields__4__output_name": "_batch_time", "sink__mapping__4": None},
     ["join.output_fields[4].output_name: '_batch_time' is reserved for the joined event; choose another output_name"]),
    ({"transforms__0__source_id": "joined"},
     ["transforms[0].source_id: no source is called 'joined'; did you mean 'join'?"]),
    ({"transforms__1__source_id": "join"},
     ["transforms[1].source_id: 'join' is the join, and events are deduplicated before it; name lots or bids"]),
    ({"transforms__0": STATELESS},
     ["transforms[0].source_id: 'lots' is a source of the join, which ... write source_id: join, where"]),
    ({"transforms__1__config": EVENT_DEDUP},
     ["transforms[1].config.clock: event is not supported with a join; write processing, and remove event_time and"]),
    ({"transforms__0": keep("bids", "title != ''")}, ["transforms[0].config.expression: unknown field 'title'"]),
    ({"transforms__0": keep("join", "title != ''")},
     ["transforms[0].config.expression: unknown field 'title'; did you"]),
    ({"transforms__0": keep("join", "_offset > 1")}, ["transforms[0].config.expression: unknown field '_offset'"]),
    ({"sink__mapping__4__name": "title"},
     ["sink.mapping[4].name: 'title' is not among join.output_fields; list it there"]),
    ({"sink__mapping__4__name": "_offset"}, ["sink.mapping[4].name: '_offset' is not among join.output_fields; list"]),
    ({"join__output_fields__4__name": "titel", "sink__mapping__3__name": "nte"},
     ["join.output_fields[4].name: 'titel' is not in schema_fields of source 'lots'; did you mean 'title'?",
      "sink.mapping[3].name: 'nte' is not among join.output_fields; did you mean 'note'?"]),
    ({"sink__mapping__4__name": "lot_titel"},
     ["sink.mapping[4].name: 'lot_titel' is not among join.output_fields; did you mean 'lot_title'?"]),
    ({"transforms__0": make("join", title="lot_title", bid_id="bid_id"), "sink__mapping": [
        {"name": "lot_title", "column_name": "a", "column_type": "String"},
        {"name": "titel", "column_name": "b", "column_type": "String"}]},
     ["sink.mapping[0].name: 'lot_title' is not among the outputs of the last stateless transform; list it there",
      "sink.mapping[1].name: 'titel' is not an output of the last stateless transform; did you mean 'title'?"]),
    ({"sink__mapping__2__column_type": "Int32"},
     ["sink.mapping[2].column_type: Int32 takes int ... but field 'amount'"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "lines"), MISTAKES, ids=[lines[0][:60] for _, lines in MISTAKES])
def test_a_mistake_is_told_at_its_place_and_nothing_that_follows_from_it(
    tmp_path: Path, changes: dict[str, Any], lines: list[str]
) -> None:
    definition = joined()
    if "sources__2" in changes:
        definition["sources"].append(None)
    file = write(tmp_path, changed(definition, **changes))
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(file, {})
    told = [line.removeprefix(f"{file}: ") for line in str(raised.value).splitlines()]
    assert len(told) == len(lines), told
    for line, expected in zip(told, lines, strict=True):
        beginning, *rest = expected.split(" ... ")
        assert line.startswith(beginning)
        assert all(part in line for part in rest)
    assert "s3cr3t" not in str(raised.value)


def test_names_that_are_missing_for_another_mistake_are_not_told_again(tmp_path: Path) -> None:
    wrong = {
        "join__output_fields__4__name": "titel",
        "transforms__0": keep("join", "lot_title != ''"),
        "transforms__1": make("join", title="upper(lot_title)"),
        "sink__mapping": [{"name": "title", "column_name": "title", "column_type": "String"}],
    }
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, joined(**wrong)), {})
    assert [problem.path for problem in raised.value.problems] == ["join.output_fields[4].name"]


def test_the_documented_definition_is_right(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "guides" / "joins.md").read_text(encoding="utf-8")
    file = tmp_path / "documented.yaml"
    file.write_text(text.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    config = load_pipeline(file, {})
    assert [source.topic for source in config.inputs] == ["auction.bids", "auction.lots"]


def test_convert_gives_a_join_back(tmp_path: Path) -> None:
    file = write(tmp_path, joined(join__type="left"))
    assert convert_definition(file, {}).definition == joined(join__type="left")
