"""Definitions by HTTP: create, get, list, edit, rename, delete, versions."""

import copy
import json
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline
from tests.server.api.conftest import Api, deduplicating

PIPELINE = "/api/v1/pipeline"


def stopped(api: Api, **changes: Any) -> dict[str, Any]:
    """Write a definition that no driver runs, and return it."""
    definition = deduplicating(**changes)
    api.write(definition)
    return definition


def test_what_is_created_can_be_read_listed_and_loaded(api: Api) -> None:
    sent = deduplicating()
    created = api.post(PIPELINE, sent)
    assert (created.status_code, created.json()) == (200, {})
    got = api.get(f"{PIPELINE}/orders-clean")
    assert got.headers["etag"] == created.headers["etag"]
    masked = copy.deepcopy(sent)
    masked["sink"]["connection_params"]["password"] = "********"
    assert got.json() == {**masked, "metadata": {"tags": []}}
    [entry] = api.get(PIPELINE).json()
    assert (entry["pipeline_id"], entry["name"], entry["transformation_type"], entry["metadata"]) == (
        "orders-clean", "Clean orders", "Deduplication", {"tags": []},
    )  # fmt: skip
    config = load_pipeline(api.folder / "orders-clean.yaml", {})
    assert config.sink.connection_params.password.get_secret_value() == "s3cret"


def test_a_secret_is_in_a_file_of_its_own_that_only_the_owner_reads(api: Api) -> None:
    api.post(PIPELINE, deduplicating(password="p\n: '\"{x}"))
    written = (api.folder / "orders-clean.yaml").read_text()
    assert "{x}" not in written
    [reference] = re.findall(r"\$\{file:(.*)\}", written)
    secret = api.folder / reference
    assert secret.read_text() == "p\n: '\"{x}\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    for folder in (api.folder / ".api", secret.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert load_pipeline(api.folder / "orders-clean.yaml", {}).sink.connection_params.password.get_secret_value() == (
        "p\n: '\"{x}"
    )
    # The folder may be a repository.
    assert (api.folder / ".api" / ".gitignore").read_text() == "*\n"
    for path in (PIPELINE, f"{PIPELINE}/orders-clean", f"{PIPELINE}/orders-clean/history/1"):
        assert "{x}" not in api.get(path).text


@pytest.mark.parametrize(("change", "status", "code", "field"), [
    ({"pipeline_id": "a/../../b"}, 400, "bad_request", None),
    ({"pipeline_id": "..-up"}, 400, "bad_request", None),
    ({"pipeline_id": "a"}, 400, "bad_request", None),
    ({"pipeline_id": 12345}, 400, "bad_request", None),
    ({"pipeline_id": None}, 422, "unprocessable_entity", "pipeline_id"),
    ({"sink": {}}, 422, "unprocessable_entity", "sink.table"),
    ({"sources": []}, 422, "unprocessable_entity", "sources"),
    ({"sources": 7}, 422, "unprocessable_entity", "sources"),
    ({"misspelt": 1}, 422, "unprocessable_entity", "misspelt"),
    ({"name": "${HOME}"}, 422, "unprocessable_entity", "name"),
    ({"name": "${file:/etc/passwd}"}, 422, "unprocessable_entity", "name"),
])  # fmt: skip
def test_a_wrong_definition_is_refused_as_glassflow_does(
    api: Api, change: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    answer = api.post(PIPELINE, deduplicating(**change))
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    if field:
        assert field in {error["field"] for error in body["errors"]}
        assert field in body["details"]["error"]
        assert body["message"] == "failed to convert request to pipeline model"
    assert not list(api.folder.glob("*.yaml"))


@pytest.mark.parametrize(("content", "media_type", "reason"), [
    (b"{", "application/json", "invalid json: Expecting property name"),
    (b"[1]", "application/json", "invalid json: the body is no object"),
    (b'{"n": NaN}', "application/json", "invalid json: NaN is no number of JSON"),
    (b'{"n": "\\ud800"}', "application/json", "invalid json: it is no UTF-8 text"),
    (b"\xff", "application/json", "invalid json: it is no UTF-8 text"),
    (b'{"n": ' + b"9" * 5000 + b"}", "application/json", "invalid json: "),
    (b"[" * 100_000, "application/json", "invalid json: is nested too deeply"),
    (b"a: [", "application/yaml", "is neither YAML nor JSON"),
    (b"a: &a [x,x]\nb: &b [*a,*a]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (c, c, c - 1, c - 1) for c in range(99, 122)),
     "application/yaml", "aliases repeat more than"),
])  # fmt: skip
@pytest.mark.parametrize("path", [PIPELINE, f"{PIPELINE}/validate", f"{PIPELINE}/orders-clean/edit"])
def test_an_unreadable_body_is_refused(api: Api, path: str, content: bytes, media_type: str, reason: str) -> None:
    answer = api.request("POST", path, content=content, headers={"content-type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert reason in answer.json()["message"]


def test_an_id_can_be_used_once(api: Api) -> None:
    stopped(api)
    answer = api.post(PIPELINE, deduplicating())
    assert (answer.status_code, answer.json()["message"]) == (409, "pipeline with this ID already exists")
    api.folder.joinpath("other-name.yaml").write_text("x: y")
    other = api.post(PIPELINE, deduplicating("other-name"))
    assert other.status_code == 409
    assert api.folder.joinpath("other-name.yaml").read_text() == "x: y"


def test_a_table_of_another_pipeline_is_refused_unless_both_say_that_they_share_it(api: Api) -> None:
    stopped(api)
    second = deduplicating("orders-again")
    for path in (PIPELINE, f"{PIPELINE}/validate"):
        refused = api.post(path, second)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "sink.table")
        assert "d.orders is also written by pipeline 'orders-clean'; name another table" in refused.text
    assert not (api.folder / "orders-again.yaml").exists()
    # That only the new one says so is not enough: the checks of the other one do not know.
    second["sink"]["shared_table"] = True
    assert "which does not say sink.shared_table: true" in api.post(PIPELINE, second).text
    first = deduplicating()
    first["sink"]["shared_table"] = True
    assert api.post(f"{PIPELINE}/orders-clean/edit", first).status_code == 200
    api.wait_for("orders-clean", "Failed")
    assert api.post(PIPELINE, second).status_code == 200
    # Neither an edit nor an earlier version may take it back.
    assert api.post(f"{PIPELINE}/orders-clean/edit", deduplicating()).status_code == 422
    assert api.post(f"{PIPELINE}/orders-clean/rollback", {"version": 1}).status_code == 422


def test_definitions_that_shared_a_table_before_can_say_so_one_after_the_other(api: Api) -> None:
    for name in ("orders-clean", "orders-again"):
        stopped(api, pipeline_id=name)
    for name in ("orders-clean", "orders-again"):
        assert api.post(f"{PIPELINE}/{name}/edit", deduplicating(name)).status_code == 422
        edited = deduplicating(name)
        edited["sink"]["shared_table"] = True
        assert api.post(f"{PIPELINE}/{name}/edit", edited).status_code == 200


@pytest.mark.parametrize("path", ["", "/health", "/metrics", "/resources", "/history", "/history/1"])
@pytest.mark.parametrize("name", ["nothing", "..%2F..%2Fetc%2Fpasswd", "%00"])
def test_an_unknown_pipeline_is_not_found(api: Api, path: str, name: str) -> None:
    answer = api.get(f"{PIPELINE}/{name}{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_an_edit_replaces_the_definition_and_keeps_secrets_that_are_not_sent(api: Api) -> None:
    file = api.write(deduplicating())
    changed = api.get(f"{PIPELINE}/orders-clean").json()
    changed["transforms"][0]["config"]["time_window"] = "12h"
    del changed["name"]
    answer = api.post(f"{PIPELINE}/orders-clean/edit", changed)
    assert (answer.status_code, answer.json()) == (200, {"dropped_keys": ["name"]})
    config = load_pipeline(file, {})
    assert config.dedup
    assert config.dedup.time_window.total_seconds() == 12 * 3600
    assert config.sink.connection_params.password.get_secret_value() == "s3cret"
    # It was in plain text in the author's file.
    assert "s3cret" not in file.read_text()


def test_defaults_that_a_client_spells_out_are_no_other_server(api: Api) -> None:
    """GlassFlow's SDK sends all keys that it knows."""
    definition = deduplicating()
    kafka, clickhouse = definition["sources"][0]["connection_params"], definition["sink"]["connection_params"]
    kafka |= {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "me", "password": "another"}
    del clickhouse["secure"]
    clickhouse["port"] = int(clickhouse["port"])
    file = api.write(definition)
    sent = api.get(f"{PIPELINE}/orders-clean").json()
    sent["sink"]["connection_params"] |= {"secure": False, "skip_certificate_verification": False}
    sent["sources"][0]["connection_params"] |= {"skip_tls_verification": False}
    sent["sources"][0]["schema"] = {"fields": sent["sources"][0].pop("schema_fields")}
    answer = api.post(f"{PIPELINE}/orders-clean/edit", sent)
    assert (answer.status_code, answer.json()) == (200, {})
    config = load_pipeline(file, {})
    assert config.connection.password
    assert config.connection.password.get_secret_value() == "another"
    assert config.sink.connection_params.password.get_secret_value() == "s3cret"
    # Without encryption is another way to the same server.
    sent["sources"][0]["connection_params"]["protocol"] = "SASL_SSL"
    assert api.post(f"{PIPELINE}/validate", sent).status_code == 422


def test_the_secrets_of_an_object_store_are_secrets(api: Api) -> None:
    state = {
        "url": "s3a://bucket/p",
        "endpoint": "http://a:1",
        "access_key_id": "k",
        "secret_access_key": "of-the-store",
    }
    definition = deduplicating()
    assert api.post(PIPELINE, {**definition, "state": state}).status_code == 200
    assert "of-the-store" not in (api.folder / "orders-clean.yaml").read_text()
    shown = api.get(f"{PIPELINE}/orders-clean").json()
    assert shown["state"] == {**state, "secret_access_key": "********"}
    assert api.post(f"{PIPELINE}/validate", shown).status_code == 200
    shown["state"]["endpoint"] = "http://b:1"
    [error] = api.post(f"{PIPELINE}/validate", shown).json()["errors"]
    assert error["field"] == "state.secret_access_key"


@pytest.mark.parametrize("path", ["pipelines", "other-server", "no-secret"])
def test_a_secret_stays_with_its_server(api: Api, path: str) -> None:
    file = api.write(deduplicating(password="" if path == "no-secret" else "s3cret"))
    before = file.read_bytes()
    changed = api.get(f"{PIPELINE}/orders-clean").json()
    connection = changed["sink"]["connection_params"]
    connection["password"] = "********"
    if path == "pipelines":
        connection["password"] = "${file:../pipelines/orders-clean.yaml}"
    elif path == "other-server":
        connection["host"] = "elsewhere.example"
    answer = api.post(f"{PIPELINE}/orders-clean/edit", changed)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == "sink.connection_params.password"
    assert file.read_bytes() == before
    if path == "other-server":
        connection["password"] = "new"
        assert api.post(f"{PIPELINE}/orders-clean/edit", changed).status_code == 200
        assert load_pipeline(file, {}).sink.connection_params.password.get_secret_value() == "new"


def test_an_authors_references_stay_where_they_are(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_PASSWORD", "of the environment")
    file = api.write(deduplicating(password="${OWN_PASSWORD}"))
    got = api.get(f"{PIPELINE}/orders-clean").json()
    assert got["sink"]["connection_params"]["password"] == "${OWN_PASSWORD}"
    got["sink"]["max_batch_size"] = 7
    assert api.post(f"{PIPELINE}/orders-clean/edit", got).status_code == 200
    assert yaml.safe_load(file.read_text())["sink"]["connection_params"]["password"] == "${OWN_PASSWORD}"
    api.wait_for("orders-clean", "Failed")  # nothing listens
    got["sink"]["connection_params"]["host"] = "elsewhere.example"
    assert api.post(f"{PIPELINE}/orders-clean/edit", got).status_code == 422


@pytest.mark.parametrize("password", ["", "s3cret"])
def test_a_pipeline_can_be_renamed_and_labelled_without_a_restart(api: Api, password: str) -> None:
    stopped(api, password=password)
    assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "Neu ü"}).json() == {}
    labelled = api.request("PATCH", f"{PIPELINE}/orders-clean/metadata", json={"metadata": {"tags": ["a"]}})
    assert labelled.status_code == 200
    got = api.get(f"{PIPELINE}/orders-clean").json()
    assert (got["name"], got["metadata"]) == ("Neu ü", {"tags": ["a"]})
    assert api.get(f"{PIPELINE}/orders-clean/health").json()["pipeline_name"] == "Neu ü"
    assert api.status("orders-clean") == "Stopped"
    wrong = api.request("PATCH", f"{PIPELINE}/orders-clean", json={"nome": "x"})
    assert wrong.status_code == 422
    assert {error["field"] for error in wrong.json()["errors"]} == {"body.name", "body.nome"}
    assert api.request("PATCH", f"{PIPELINE}/nothing", json={"name": "x"}).status_code == 404


def test_resources_change_while_the_pipeline_is_stopped(api: Api) -> None:
    stopped(api)
    path = f"{PIPELINE}/orders-clean/resources"
    assert api.get(path).json()["pipeline_resources"] == {}
    changed = api.request("PUT", path, json={"pipeline_resources": {"sink": {"replicas": 2}}})
    assert changed.json()["pipeline_resources"] == {"sink": {"replicas": 2}}
    assert "transform/replicas" in changed.json()["fields_policy"]["immutable"]
    assert api.get(f"{path}/validation").json() == {"fields_policy": changed.json()["fields_policy"]}
    wrong = api.request("PUT", path, json={"pipeline_resources": {"sink": {"replicas": 0}}})
    assert wrong.status_code == 422
    transform = {"source_id": "orders", "replicas": 2, "storage": {"size": "1Gi"}}
    for resources, field in (
        ({"transform": [transform]}, None),
        ({"transform": [{**transform, "replicas": 3}]}, "transform/replicas"),
        ({"transform": [{**transform, "storage": {"size": "2Gi"}}]}, "transform/storage/size"),
        ({"transform": [transform], "nats": {"stream": {"maxAge": "1h"}}}, None),
        ({"transform": [transform], "nats": {"stream": {"maxAge": "2h"}}}, "nats/stream/maxAge"),
    ):
        answer = api.request("PUT", path, json={"pipeline_resources": resources})
        assert answer.status_code == (422 if field else 200)
        if field:
            assert answer.json()["message"] == f'immutable field "{field}" cannot be changed'
    assert api.status("orders-clean") == "Stopped"


def test_each_version_is_kept_and_can_be_the_current_one_again(api: Api) -> None:
    file = api.write(deduplicating())
    by_hand = file.read_bytes()
    for name in ("second", "third"):
        assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": name}).status_code == 200
    file.write_bytes(file.read_bytes().replace(b"third", b"fourth, by hand"))
    history = api.get(f"{PIPELINE}/orders-clean/history").json()
    assert [each["version"] for each in history] == [4, 3, 2, 1]
    assert history[0]["etag"] == api.get(f"{PIPELINE}/orders-clean").headers["etag"]
    names = [api.get(f"{PIPELINE}/orders-clean/history/{n}").json()["name"] for n in (1, 2, 3, 4)]
    assert names == ["Clean orders", "second", "third", "fourth, by hand"]
    assert api.get(f"{PIPELINE}/orders-clean/history/9").status_code == 404
    # It starts the pipeline, which fails, since nothing listens.
    assert api.post(f"{PIPELINE}/orders-clean/rollback", {"version": 1}).status_code == 200
    assert file.read_bytes() == by_hand
    assert [each["version"] for each in api.get(f"{PIPELINE}/orders-clean/history").json()] == [5, 4, 3, 2, 1]
    api.wait_for("orders-clean", "Failed")


def test_numbers_of_versions_count_on_from_the_last_one(api: Api) -> None:
    """Also where somebody has removed the first versions."""
    file = api.write(deduplicating())
    for name in ("second", "third"):
        assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": name}).status_code == 200
    for number in (1, 2):
        (api.folder / ".api" / "history" / "orders-clean" / f"{number}.yaml").unlink()
    file.write_bytes(file.read_bytes().replace(b"third", b"fourth, by hand"))
    for numbers in ([4, 3], [5, 4, 3]):
        assert [each["version"] for each in api.get(f"{PIPELINE}/orders-clean/history").json()] == numbers
        names = [api.get(f"{PIPELINE}/orders-clean/history/{number}").json()["name"] for number in (3, 4)]
        assert names == ["third", "fourth, by hand"]
        assert api.get(f"{PIPELINE}/orders-clean/history/2").status_code == 404
        api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "fifth"})


def test_an_edit_of_another_version_is_refused(api: Api) -> None:
    stopped(api)
    old = api.get(f"{PIPELINE}/orders-clean")
    headers = {"if-match": old.headers["etag"]}
    renamed = api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"}, headers=headers)
    assert renamed.status_code == 200
    for method, path, body in (
        ("PATCH", "", {"name": "y"}), ("PATCH", "/metadata", {"metadata": {}}), ("POST", "/edit", old.json()),
        ("PUT", "/resources", {"pipeline_resources": {}}), ("POST", "/rollback", {"version": 1}), ("DELETE", "", None),
    ):  # fmt: skip
        answer = api.request(method, f"{PIPELINE}/orders-clean{path}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed"), (method, path)
        assert answer.json()["details"]["etag"] == renamed.headers["etag"]
    accepted = api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "y"}, headers={"if-match": '"a", *'})
    assert accepted.status_code == 412
    matching = {"if-match": f'"other", {renamed.headers["etag"]}'}
    assert api.request("DELETE", f"{PIPELINE}/orders-clean", headers=matching).status_code == 200


def test_a_deleted_pipeline_is_gone_with_its_secrets_and_its_versions_stay(api: Api) -> None:
    stopped(api)
    api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"})
    assert (api.folder / ".api" / "secrets" / "orders-clean").is_dir()
    assert api.request("DELETE", f"{PIPELINE}/orders-clean").json() == {}
    assert api.get(PIPELINE).json() == []
    assert not (api.folder / ".api" / "secrets" / "orders-clean").exists()
    assert [file.name for file in sorted((api.folder / ".api" / "history" / "orders-clean").iterdir())] == [
        "1.yaml", "2.yaml",
    ]  # fmt: skip
    assert api.request("DELETE", f"{PIPELINE}/orders-clean").status_code == 404
    assert api.post(PIPELINE, deduplicating()).status_code == 200
    assert [each["version"] for each in api.get(f"{PIPELINE}/orders-clean/history").json()] == [3, 2, 1]


def test_a_json_file_stays_one(api: Api) -> None:
    api.folder.mkdir()
    file = api.folder / "some.json"
    file.write_text(json.dumps(deduplicating()))
    assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "é"}).status_code == 200
    assert json.loads(file.read_text())["name"] == "é"


def test_an_older_format_is_taken_and_answered_as_v3(api: Api) -> None:
    v2 = {
        "version": "v2", "pipeline_id": "readings", "name": "n",
        "source": {
            "type": "kafka", "connection_params": {"brokers": ["127.0.0.1:1"], "protocol": "PLAINTEXT"},
            "topics": [{"name": "readings", "deduplication": {"enabled": True, "id_field": "id", "time_window": "1h"}}],
        },
        "schema": {"fields": [{"source_id": "readings", "name": "id", "type": "string", "column_name": "id",
                               "column_type": "String"}]},
        "sink": {"type": "clickhouse", "host": "127.0.0.1", "port": "9000", "database": "d", "username": "u",
                 "password": "czNjcmV0", "table": "t"},
    }  # fmt: skip
    preview = api.post(f"{PIPELINE}/migrate-preview", v2)
    assert preview.status_code == 200
    assert preview.json()["sink"]["connection_params"]["password"] == "s3cret"
    assert not list(api.folder.glob("*"))
    assert api.post(PIPELINE, v2).status_code == 200
    got = api.get(f"{PIPELINE}/readings").json()
    assert (got["version"], got["transforms"][0]["config"]["key"]) == ("v3", "id")
    wrong = api.post(f"{PIPELINE}/migrate-preview", {"version": "v2", "source": {"topics": 1}})
    assert (wrong.status_code, wrong.json()["message"]) == (422, "failed to convert v2 pipeline to v3")


def test_a_definition_can_be_checked_without_writing_it(api: Api) -> None:
    checked = api.post(f"{PIPELINE}/validate", deduplicating())
    assert checked.json() == {"valid": True, "warnings": []}
    broken = deduplicating()
    broken["transforms"] = [{"type": "filter", "source_id": "orders", "config": {"expression": "amuont > 1"}}]
    answer = api.post(f"{PIPELINE}/validate", broken)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "transforms[0].config.expression")
    assert not api.folder.exists()
    text = yaml.safe_dump(deduplicating())
    as_yaml = api.request(
        "POST", f"{PIPELINE}/validate", content=text, headers={"content-type": "application/yaml; charset=utf-8"}
    )
    assert as_yaml.json() == {"valid": True, "warnings": []}


def test_an_invalid_file_is_shown_and_can_be_corrected(api: Api) -> None:
    broken = deduplicating()
    broken["sink"]["table"] = ""
    api.write(broken)
    (api.folder / "unreadable.yaml").write_text("{")
    [entry] = api.get(PIPELINE).json()
    assert entry["pipeline_id"] == "orders-clean"
    got = api.get(f"{PIPELINE}/orders-clean").json()
    refused = api.post(f"{PIPELINE}/orders-clean/resume")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "sink.table")
    got["sink"]["table"] = "orders"
    assert api.post(f"{PIPELINE}/orders-clean/edit", got).status_code == 200
    api.wait_for("orders-clean", "Failed")


@pytest.mark.parametrize("change", [
    {"sources": 7}, {"sources": [7]}, {"sink": 7}, {"sink": {"connection_params": 7}}, {"join": 7}, {"transforms": [7]},
    {"metadata": 7}, {"resources": 7}, {"version": 7}, {"name": 7},
    {"sources": [{"schema": 7, "connection_params": 7}]},
    {"sources": [{"connection_params": {"password": [7]}}]}, {"sink": {"connection_params": {"password": 7}}},
])  # fmt: skip
def test_what_is_no_definition_at_all_can_be_looked_at(api: Api, change: dict[str, Any]) -> None:
    api.write(deduplicating(**change))
    for path in ("", "/orders-clean", "/orders-clean?schema=a:1", "/orders-clean/history", "/orders-clean/history/1",
                 "/orders-clean/health", "/orders-clean/resources", "/orders-clean/dlq/state"):  # fmt: skip
        assert api.get(f"{PIPELINE}{path}").status_code in {200, 400, 422, 503}, path
    assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"}).status_code in {200, 422}


def test_a_pipeline_whose_status_is_unreadable_hides_no_other(api: Api) -> None:
    stopped(api)
    api.write(deduplicating("another-one"))
    folder = api.state / "another-one"
    folder.mkdir(parents=True)
    (folder / "heartbeat.json").write_text("{")
    another, orders = api.get(PIPELINE).json()
    assert (another["status"], orders["status"]) == ("Failed", "Stopped")
    assert "heartbeat.json: cannot be read" in another["error"]
    assert api.get(f"{PIPELINE}/another-one/health").status_code == 503


def test_a_selected_schema_version_must_be_that_of_the_definition(api: Api) -> None:
    stopped(api)
    path = f"{PIPELINE}/orders-clean"
    assert api.get(path, params={"schema": "orders:1"}).status_code == 200
    for wrong in ("orders:2", "other:1", "orders", ":1", ""):
        assert api.get(path, params={"schema": wrong}).status_code == 400


def test_fifty_clients_at_once_leave_whole_files_and_no_gap_in_the_versions(api: Api) -> None:
    file = api.write(deduplicating())
    names = [f"name {number} {'x' * 900}" for number in range(150)]

    def rename(name: str) -> int:
        assert load_pipeline(file, {}).pipeline_id == "orders-clean"
        answer = api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": name})
        assert api.get(f"{PIPELINE}/orders-clean").json()["name"] in {*names, "Clean orders"}
        return answer.status_code

    with ThreadPoolExecutor(50) as clients:
        assert {*clients.map(rename, names)} == {200}
    versions = [each["version"] for each in api.get(f"{PIPELINE}/orders-clean/history").json()]
    assert versions == [*range(len(names) + 1, 0, -1)]
    found = [yaml.safe_load((api.folder / ".api/history/orders-clean" / f"{n}.yaml").read_text()) for n in versions]
    assert sorted(each["name"] for each in found) == sorted([*names, "Clean orders"])


def test_of_fifty_edits_of_one_version_one_is_done(api: Api) -> None:
    stopped(api)
    headers = {"if-match": api.get(f"{PIPELINE}/orders-clean").headers["etag"]}

    def rename(number: int) -> int:
        body = {"name": f"name {number}"}
        return api.request("PATCH", f"{PIPELINE}/orders-clean", json=body, headers=headers).status_code

    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(rename, range(50)))
    assert (answers.count(200), answers.count(412)) == (1, 49)


def test_every_change_is_in_the_audit_log(api: Api) -> None:
    api.write(deduplicating())
    api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"}, headers={"user-agent": "tests"})
    api.post(PIPELINE, deduplicating())
    api.get(PIPELINE)
    api.post(f"{PIPELINE}/validate", deduplicating())
    api.request("PATCH", f"{PIPELINE}/orders-clean", json={})
    file = api.folder / ".api" / "audit.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["event"], line.get("status")) for line in lines] == [
        ("received", None), ("done", 200), ("received", None), ("done", 409), ("received", None), ("done", 422),
    ]  # fmt: skip
    first, done, _, refused, *_ = lines
    assert (first["method"], first["path"], first["client"], first["user_agent"]) == (
        "PATCH", f"{PIPELINE}/orders-clean", "127.0.0.1", "tests",
    )  # fmt: skip
    assert first["request"] == done["request"]
    assert (refused["pipeline_id"], refused["reason"]) == ("orders-clean", "pipeline with this ID already exists")
    assert "s3cret" not in file.read_text()


def test_nothing_is_changed_that_cannot_be_logged(api: Api) -> None:
    stopped(api)
    (api.folder / ".api" / "audit.jsonl").mkdir(parents=True)
    answer = api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert "audit.jsonl: cannot be written" in answer.json()["message"]
    assert api.get(f"{PIPELINE}/orders-clean").json()["name"] == "Clean orders"


def test_a_file_that_cannot_be_written_is_told_and_stays(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = stopped(api)

    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassflow_dagster.server.api.files.os.fsync", refuse)
    for method, path, body in (
        ("PATCH", "/orders-clean", {"name": "x"}), ("DELETE", "/orders-clean", None),
        ("POST", "", deduplicating("another-one", table="another")),
    ):  # fmt: skip
        answer = api.request(method, f"{PIPELINE}{path}", json=body)
        assert answer.status_code == 503
        assert "cannot be written (No space left on device)" in answer.json()["message"]
    assert [each["name"] for each in api.get(PIPELINE).json()] == [definition["name"]]


def test_a_definition_that_is_a_link_stays_one(api: Api) -> None:
    file = api.write(deduplicating())
    target = file.rename(api.folder.parent / "elsewhere.yaml")
    file.symlink_to(target)
    assert api.request("PATCH", f"{PIPELINE}/orders-clean", json={"name": "x"}).status_code == 200
    assert file.is_symlink()
    assert yaml.safe_load(target.read_text())["name"] == "x"


def test_an_id_that_is_a_path_is_none(api: Api) -> None:
    for number, name in enumerate(("..", "../up", "/etc", "a.b", "")):
        definition = deduplicating()
        api.write(definition).rename(api.folder / f"{number}.yaml").write_text(
            yaml.safe_dump({**definition, "pipeline_id": name})
        )
    assert api.get(PIPELINE).json() == []
    assert api.get(f"{PIPELINE}/%2E%2E").status_code == 404


def test_a_folder_that_is_not_writable_is_told(api: Api) -> None:
    api.folder.write_text("a file")
    answer = api.post(PIPELINE, deduplicating())
    assert answer.status_code == 503
