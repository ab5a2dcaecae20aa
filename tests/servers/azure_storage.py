"""A server of Azure's blob storage for tests: Azurite, which npm installs. It has no hierarchical namespace."""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import requests

from glassflow_dagster.runtime.cache import cache_folder, cached
from tests.servers.state_server import HOST, StateServer, running_process

ACCOUNT, CONTAINER = "glassflow", "state"
KEY = base64.b64encode(b"a key of the tests alone").decode()
_PACKAGE, _VERSION = "azurite", "3.37.0"
_PROGRAM = "node_modules/.bin/azurite-blob"
_NO_HEADERS = "\n" * 11
_API = "2021-08-06"  # the version of the interface by which the container is created


class AzureServer(StateServer):
    """A running server."""

    @property
    def variables(self) -> dict[str, str]:
        return {"AZURE_STORAGE_KEY": KEY, "GLASSFLOW_AZURE_SERVER": self.endpoint}

    def definition(self, place: str | None = None) -> dict[str, str]:
        url = f"abfs://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{place or uuid.uuid4().hex}"
        return {"url": url, "endpoint": self.endpoint}


@contextmanager
def running_azure_storage(folder: Path, port: int) -> Iterator[AzureServer]:
    """Run the server while the block runs; its blobs are files of the folder.

    Its key is in the environment of this process, for the drivers that it starts: a definition has no key of Azure's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server, log = AzureServer(port), folder / "azure.log"
    command = [str(_azurite()), "--location", str(folder / "blobs"), "--blobHost", HOST, "--blobPort", str(port),
               "--skipApiVersionCheck", "--disableTelemetry", "--silent"]  # fmt: skip
    os.environ["AZURE_STORAGE_KEY"] = KEY
    accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with running_process(command, log, lambda: _creates_container(server), accounts):
        yield server


def _azurite() -> Path:
    """Return the program, which is installed once, into the cache."""

    def install(folder: Path) -> None:
        npm = shutil.which("npm")
        assert npm, "Azurite is installed by npm, which is not there; install Node.js"
        package = f"{_PACKAGE}@{_VERSION}"
        subprocess.run([npm, "install", "--silent", "--prefix", str(folder), package], check=True)

    return cached(cache_folder() / _PACKAGE / _VERSION, _PROGRAM, install)


def _creates_container(server: AzureServer) -> bool:
    """Create the container; return whether it is there."""
    date = format_datetime(datetime.now(UTC), usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{_API}\n"
    # Method, eleven headers that are not sent, those that are, and the resource ("Authorize with Shared Key").
    text = f"PUT\n{_NO_HEADERS}{headers}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    try:
        answer = requests.put(
            f"{server.endpoint}/{ACCOUNT}/{CONTAINER}?restype=container",
            headers={
                "x-ms-date": date, "x-ms-version": _API, "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
            timeout=10,
        )  # fmt: skip
    except requests.ConnectionError:
        return False
    assert answer.status_code in {201, 409}, answer.text
    return True
