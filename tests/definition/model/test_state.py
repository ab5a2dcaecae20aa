"""The store of a checkpoint, as a definition, an option or the environment names it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.state import State, azure_key_in, is_url
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.open_storage import open_storage
from tests.definition.test_load import definition, write


def with_state(tmp_path: Path, state: Any) -> Path:
    return write(tmp_path, {**definition(), "state": state})


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [("s3a://b.c/p/q/", "b.c", "p/q"), ("s3://bucket", "bucket", ""), ("s3a://bucket/", "bucket", "")],
)
def test_a_bucket_has_a_prefix(url: str, bucket: str, prefix: str) -> None:
    state = State(url=url)
    assert (state.bucket, state.prefix, state.folder) == (bucket, prefix, None)
    assert state.url == f"s3a://{bucket}{'/' if prefix else ''}{prefix}"


def test_a_bucket_may_be_googles(tmp_path: Path) -> None:
    state = State(url="gs://b_c/p/q/")
    assert (state.url, state.bucket, state.prefix, state.folder) == ("gs://b_c/p/q", "b_c", "p/q", None)
    assert (state.is_google, state.is_s3, State(url="s3a://bucket").is_google) == (True, False, False)
    assert open_storage(state, tmp_path, "p").location == "gs://b_c/p/q/p/checkpoint"
    environment = {"STORAGE_EMULATOR_HOST": "http://a:1/"}
    assert (state.google_server_in({}), state.google_server_in(environment)) == (None, "http://a:1")
    assert State(url="gs://bucket", endpoint="https://b").google_server_in(environment) == "https://b"


def test_a_container_is_one_of_an_azure_account(tmp_path: Path) -> None:
    state = State(url="abfss://my-state@account1.blob.core.windows.net/p/q/")
    assert (state.url, state.bucket_url) == (f"{state.bucket_url}/p/q", "abfs://my-state@account1.dfs.core.windows.net")
    assert (state.bucket, state.prefix, state.azure_account, state.folder) == ("my-state", "p/q", "account1", None)
    assert (state.is_azure, state.is_s3, State(url="gs://bucket").is_azure) == (True, False, False)
    assert open_storage(state, tmp_path, "p").location == f"{state.url}/p/checkpoint"
    assert state.azure_account_url_in({}) == "https://account1.blob.core.windows.net"
    environment = {"GLASSFLOW_AZURE_SERVER": "http://a:1/"}
    assert state.azure_account_url_in(environment) == "http://a:1/account1"
    named = state.model_copy(update={"endpoint": "https://b"})
    assert (named.azure_server_in(environment), named.azure_account_url_in({})) == ("https://b", "https://b/account1")
    china = State(url="abfs://state@account1.dfs.core.chinacloudapi.cn")
    assert (china.azure_account_url_in({}), china.prefix) == ("https://account1.blob.core.chinacloudapi.cn", "")


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({}, None),
        ({"AZURE_STORAGE_KEY": "", "AZURE_STORAGE_ACCOUNT_KEY": "b"}, "b"),
        ({"AZURE_STORAGE_KEY": "a", "AZURE_STORAGE_ACCOUNT_KEY": "b"}, "a"),
    ],
)
def test_the_key_of_an_azure_account_is_in_the_environment(environment: dict[str, str], key: str | None) -> None:
    assert azure_key_in(environment) == key


def test_a_folder_may_be_a_url_too(tmp_path: Path) -> None:
    state = State(url=f"file://{tmp_path}/")
    assert (state.bucket, state.folder) == (None, tmp_path)
    assert open_storage(state, Path("local/p"), "p").folder == tmp_path / "p" / "checkpoint"
    assert open_storage(None, Path("local/p"), "p").folder == Path("local/p/checkpoint")


@pytest.mark.parametrize(
    ("url", "path", "webhdfs"),
    [
        ("hdfs://name:8020//a/b/", "/a/b", "http://name:9870"),
        ("hdfs://10.0.0.1", "", "http://10.0.0.1:9870"),
    ],
)
def test_hdfs_has_a_folder_and_a_web_server(url: str, path: str, webhdfs: str) -> None:
    state = State(url=url)
    assert (state.hdfs_path, state.webhdfs_in({}), state.folder, state.bucket) == (path, webhdfs, None, None)
    environment = {"GLASSFLOW_WEBHDFS": "http://c:1"}
    assert state.webhdfs_in(environment) == "http://c:1"
    assert State(url=url, endpoint="http://a:1;http://b:1").webhdfs_in(environment) == "http://a:1;http://b:1"
    storage = open_storage(state, Path("local/p"), "p")
    assert (storage.location, storage.folder) == (f"{state.url}/p/checkpoint", None)
    assert state.url == url.replace("//a", "/a").rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "abfs://bucket/p",
        "abfs://c@account/p",
        "abfs://C@a.dfs.core.windows.net",
        "wasb://c@a.b",
        "gs://Bucket/p",
        "gs:///p",
        "hdfs:///p",
        "s3a://",
        "s3a:///p",
        "file://host/p",
        "state",
        "",
    ],
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        State(url=url)


@pytest.mark.parametrize(("text", "found"), [("s3a://b/p", True), ("file:///p", True), ("state", False), ("/p", False)])
def test_a_path_is_no_url(text: str, found: bool) -> None:
    assert is_url(text) is found


def test_a_text_is_the_url(tmp_path: Path) -> None:
    short = load_pipeline(with_state(tmp_path, "s3a://bucket/p"), {})
    assert short.state == State(url="s3a://bucket/p")
    assert load_pipeline(with_state(tmp_path, {"url": "s3a://bucket/p"}), {}) == short
    # Where the checkpoint is decides no row, but a driver has to be started again.
    plain = load_pipeline(write(tmp_path, definition()), {})
    assert short.digest == plain.digest
    assert short.fingerprint != plain.fingerprint
    assert "state" not in plain.content


def test_a_url_of_the_environment_wins_and_keeps_the_access(tmp_path: Path) -> None:
    own = {"url": "s3a://own/p", "access_key_id": "k", "secret_access_key": "s"}
    state = load_pipeline(with_state(tmp_path, own), {"GLASSFLOW_STATE": "s3a://other/q"}).state
    assert state == State.model_validate({**own, "url": "s3a://other/q"})
    assert load_pipeline(with_state(tmp_path, own), {"GLASSFLOW_STATE": "/var/state"}).state == State(**own)
    plain = write(tmp_path, definition())
    assert load_pipeline(plain, {"GLASSFLOW_STATE": "file:///var/state"}).state == State(url="file:///var/state")
    with pytest.raises(GlassflowError, match=r"GLASSFLOW_STATE: 'gs://b/p' is no store for state; write s3a://"):
        load_pipeline(plain, {"GLASSFLOW_STATE": "gs://b/p"})


def test_working_files_stay_in_a_folder() -> None:
    assert state_folder({"GLASSFLOW_STATE": "s3a://b/p"}) == state_folder({}) == Path(".glassflow/state").absolute()
    assert state_folder({"GLASSFLOW_STATE": "/var/state"}) == Path("/var/state")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"url": "s3a://bucket/p", "access_key_id": "k"}, "state: access_key_id and secret_access_key belong together"),
        ({"url": "s3a://bucket/p", "endpoint": "host:9000"}, "state.endpoint: is no URL of a server; write http://"),
        (
            {"url": "abfs://bucket/p"},
            "state.url: 'abfs://bucket/p' is no store for state; write s3a://BUCKET/PREFIX, gs:",
        ),
        ({"url": "gs://bucket/p", "region": "eu-west-1"}, "state.region: applies to s3a:// only; remove it"),
        ({"url": "hdfs://h/p", "region": "eu-west-1"}, "state.region: applies to s3a:// only; remove it"),
        ({"url": "s3a://bucket/p", "endpoint": "http://a:1;http://b:1"}, "state.endpoint: a bucket has one; name one"),
        (
            {"url": "file:///p", "endpoint": "http://a:1"},
            "state.endpoint: applies to s3a://, gs://, abfs:// and hdfs:// only",
        ),
        ({"url": "file:///p", "region": "eu-west-1"}, "state.region: applies to s3a:// only; remove it"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, state: dict[str, str], text: str) -> None:
    with pytest.raises(DefinitionError) as error:
        load_pipeline(with_state(tmp_path, state), {})
    assert f": {text}" in str(error.value)


def test_what_needs_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="pool: state in a store that is no folder needs a JVM of"):
        load_pipeline(write(tmp_path, {**definition(), "state": "s3a://bucket/p", "pool": "small"}), {})


def test_settings_of_the_environment_are_used_where_the_definition_is_silent() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://a:1/", "AWS_ENDPOINT_URL_S3": "http://b:1", "AWS_DEFAULT_REGION": "x"}
    state = State(url="s3a://bucket")
    assert (state.endpoint_in(environment), state.region_in(environment)) == ("http://b:1", "x")
    assert (state.endpoint_in({}), state.region_in({})) == (None, "us-east-1")
    named = State(url="s3a://bucket", endpoint="https://c:1/", region="y")
    assert (named.endpoint_in(environment), named.region_in(environment)) == ("https://c:1", "y")
