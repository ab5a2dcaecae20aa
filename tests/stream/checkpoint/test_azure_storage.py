"""What is particular to a checkpoint in Azure's storage: lost answers, and errors that say what to do."""

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint import obstore_storage
from glassflow_dagster.stream.checkpoint.azure_storage import AzureStorage
from glassflow_dagster.stream.checkpoint.storage import StorageError
from glassflow_dagster.stream.spark.azure_storage import azure_storage_settings
from tests.servers.azure_storage import ACCOUNT, AzureServer
from tests.servers.object_store import LosingProxy

pytestmark = pytest.mark.servers


def edited(azure_storage: AzureServer, **changes: Any) -> AzureStorage:
    return AzureStorage(State.model_validate({**azure_storage.definition(), **changes}), "p")


def test_a_file_whose_answer_was_lost_is_its_own(azure_storage: AzureServer) -> None:
    """The request is repeated, and the server refuses what it has already created."""
    proxy = LosingProxy(azure_storage.port)
    storage = edited(azure_storage, endpoint=proxy.endpoint)
    storage.create("before", b"0")
    proxy.to_lose = 1
    storage.create("identity.json", b"1")
    assert (proxy.lost, storage.read("identity.json")) == (1, b"1")
    proxy.to_lose = 1
    with pytest.raises(FileExistsError):
        storage.create("identity.json", b"2")
    assert storage.read("identity.json") == b"1"
    proxy.close()


def test_a_container_that_does_not_exist_is_named(azure_storage: AzureServer) -> None:
    url = f"abfs://nowhere@{ACCOUNT}.dfs.core.windows.net"
    storage = edited(azure_storage, url=f"{url}/state")
    server = f"{azure_storage.endpoint}/{ACCOUNT}"
    text = f"{url}/state/p: container nowhere does not exist on {server}; create it, or correct"
    with pytest.raises(StorageError, match=re.escape(text)):
        storage.require_usable()
    for request in (lambda: storage.read("a"), lambda: storage.create("a", b"1")):
        with pytest.raises(StorageError, match="container nowhere does not exist"):
            request()


def test_refused_access_is_named(azure_storage: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(b"another").decode())
    storage = edited(azure_storage)
    for request in (storage.require_usable, lambda: storage.read("a"), lambda: storage.create("a", b"1")):
        with pytest.raises(StorageError, match=r"refuses access \(.+\); check the credentials \(AZURE_ST") as error:
            request()
        assert "\n" not in str(error.value)


def test_a_silent_endpoint_is_named(azure_storage: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore_storage, "FIRST_RETRY_SECONDS", 0.1)
    endpoint = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StorageError, match=rf"{endpoint}/{ACCOUNT} does not answer \(.*\); check the acc") as error:
        edited(azure_storage, endpoint=endpoint).require_usable()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"AZURE_STORAGE_KEY": "a", "AZURE_STORAGE_ACCOUNT_KEY": "b"}, {"auth.type": "SharedKey", "key": "a"}),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "b", "AZURE_CLIENT_SECRET": "s"}, {"auth.type": "SharedKey", "key": "b"}),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"},
            {
                "auth.type": "OAuth",
                "oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
                "oauth2.client.id": "c",
                "oauth2.client.secret": "s",
                "oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
            },
        ),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_FEDERATED_TOKEN_FILE": "/token"},
            {
                "auth.type": "OAuth",
                "oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.WorkloadIdentityTokenProvider",
                "oauth2.client.id": "c",
                "oauth2.msi.tenant": "t",
                "oauth2.msi.authority": "https://login.microsoftonline.com/",
                "oauth2.token.file": "/token",
            },
        ),
        (
            {},
            {
                "auth.type": "OAuth",
                "oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
            },
        ),
    ],
)
def test_spark_takes_the_credentials_that_the_environment_names(
    environment: dict[str, str], found: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if "AZURE" in name]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = azure_storage_settings(State(url="abfs://state@account.dfs.core.windows.net/p"), tmp_path)
    begin = "fs.azure.account."
    assert {name[len(begin) :]: value for name, value in settings.items() if name.startswith(begin)} == found
    assert settings["glassflow.azure.server"] == "https://account.blob.core.windows.net"
    assert not any(name.startswith(("fs.azure.abfs.endpoint", "fs.azure.fns")) for name in settings)
