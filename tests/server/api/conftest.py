"""An API on a folder of its own, served by this process, and definitions to send to it."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.heartbeat import pipelines_in
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.server.api.application import make_application
from glassflow_dagster.server.api.guard import Rules
from glassflow_dagster.server.api.services import Services
from tests.support import definition as v3
from tests.support.waiting import wait_until

LARGEST = 200_000  # bytes
SECRET = "s3cret"


@dataclass
class Api:
    """A running API."""

    url: str
    folder: Path
    state: Path
    services: Services
    said: list[str]

    def request(self, method: str, path: str, **how: Any) -> httpx.Response:
        return httpx.request(method, f"{self.url}{path}", timeout=60, **how)

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self.request("GET", path, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> httpx.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}), **how)

    def status(self, pipeline_id: str) -> str:
        return str(self.get(f"/api/v1/pipeline/{pipeline_id}/health").json()["overall_status"])

    def wait_for(self, pipeline_id: str, status: str) -> None:
        wait_until(
            lambda: self.status(pipeline_id) == status, f"{pipeline_id} is {status}",
            evidence=lambda: (self.get(f"/api/v1/pipeline/{pipeline_id}/health").text, self.said),
        )  # fmt: skip

    def wait_for_starts(self) -> None:
        """Return when no start or stop of a pipeline is in progress."""
        for stored in self.services.catalog.files.all():
            if thread := self.services.catalog.operations.thread(stored.pipeline_id):
                thread.join(60)

    def write(self, definition: dict[str, Any]) -> Path:
        """Write a definition as an author would, so that nothing is started."""
        import yaml

        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"{definition['pipeline_id']}.yaml"
        file.write_text(f"# by hand\n{yaml.safe_dump(definition)}")
        return file


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Return a function that serves an API with these rules."""
    running: list[tuple[_Server, threading.Thread]] = []

    def begin(
        token: str = "", how: Mapping[str, Any] | None = None, extend: Callable[[FastAPI], None] | None = None
    ) -> Api:
        said: list[str] = []
        folder, state = tmp_path / "pipelines", tmp_path / "state"
        services = Services.of(folder, state, LocalRunner(state, **(how or {})), said.append)
        port = free_port()
        config = uvicorn.Config(
            make_application(services, Rules(token, "127.0.0.1", LARGEST), extend), port=port, log_config=None,
            lifespan="off",
        )  # fmt: skip
        server = _Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started, "the API listens")
        return Api(f"http://127.0.0.1:{port}", folder, state, services, said)

    yield begin
    for server, thread in running:
        server.should_exit = True
        thread.join(60)
    # Of a test that failed half way.
    for pipeline_id in pipelines_in(tmp_path / "state"):
        with suppress(GlassflowError):
            stop_driver(tmp_path / "state", pipeline_id, timeout=0)


@pytest.fixture
def no_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each start fail at once: a test of definitions needs no JVM."""

    def fail(deployment: Deployment, _report: object) -> None:
        raise GlassflowError(f"{deployment.config.pipeline_id}: this test starts no driver")

    monkeypatch.setattr("glassflow_dagster.control.hosts.ensure_driver", fail)


@pytest.fixture
def api(serve: Callable[..., Api], no_drivers: None) -> Iterator[Api]:  # noqa: ARG001 - it patches
    served = serve()
    yield served
    # While they still fail: a thread that is late would start a driver.
    served.wait_for_starts()


def deduplicating(
    pipeline_id: str = "orders-clean", *, password: str = SECRET, table: str = "orders", **changes: Any
) -> dict[str, Any]:
    """Return a deduplicating definition, as GlassFlow's users write it; nothing listens at its addresses."""
    definition = v3.definition(
        pipeline_id,
        v3.source("orders", v3.fields(order_id="string", amount="int"), consumer_group_initial_offset="earliest"),
        v3.sink({"order_id": "String", "amount": "Int64"}, table=table, max_batch_size=1000, max_delay_time="1s"),
        v3.dedup("orders", "order_id", time_window="1h"),
        name="Clean orders",
    )
    definition["sink"]["connection_params"]["password"] = password
    return {**definition, **changes}


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Import the SDK where it writes no file to the user's home, and sends nothing to its authors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GF_USAGESTATS_ENABLED", "false")
        assert "glassflow.etl" not in sys.modules
        # For as long as the import alone, which is when the SDK chooses its folder: the programs that other tests of
        # this process start find their jars by HOME.
        with patch.context() as importing:
            importing.setenv("HOME", str(tmp_path_factory.mktemp("home")))
            import glassflow.ee
            import glassflow.etl
            from glassflow.etl import errors

        yield SimpleNamespace(etl=glassflow.etl, ee=glassflow.ee, errors=errors)
