"""A Prometheus for the tests: Debian's package, unpacked into the cache folder and never installed."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from tests.support.waiting import wait_until

_PACKAGE = "prometheus"
_DOWNLOAD_SECONDS = 120
_END_SECONDS = 30


class _Unavailable(Exception):
    """The package cannot be had here."""


@dataclass(frozen=True)
class Sample:
    """One element of a query's result."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Alert:
    """An alert that is pending or fires. value: that of its expression."""

    name: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs on 127.0.0.1:`port`."""

    port: int
    log: Path

    def query(self, expression: str) -> list[Sample]:
        """Return the result of an instant query: a vector."""
        data = self._get("query", query=expression)
        return [Sample(each["metric"], float(each["value"][1])) for each in data["result"]]

    def value(self, expression: str) -> float | None:
        """Return the value of a query with one element at most; None when it has none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def alerts(self) -> list[Alert]:
        """Return the alerts that are pending or fire."""
        return [
            Alert(each["labels"]["alertname"], each["state"], each["labels"], each["annotations"], float(each["value"]))
            for each in self._get("alerts")["alerts"]
        ]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {alert.name for alert in self.alerts() if alert.state == "firing"}

    def is_ready(self) -> bool:
        """Return whether Prometheus answers queries."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-1000:]

    def _get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def running_prometheus(folder: Path, targets: Mapping[str, int], rules: str = "") -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes and evaluates once a second while the block runs.

    folder: for its configuration, data and log. targets: a port of 127.0.0.1 by the name of its job. rules: the text of
    a rule file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alerts.yaml").write_text(rules or "groups: []\n")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in targets.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    found = Prometheus(free_port(), folder / "prometheus.log")
    command = [
        str(binaries() / "prometheus"), f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{found.port}",
    ]  # fmt: skip
    with found.log.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until(found.is_ready, "Prometheus is up", evidence=found.log_tail)
            yield found
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            finally:
                process.kill()


def promtool(*arguments: str, folder: Path) -> str:
    """Run promtool in a folder, and return its output; fail when it finds an error."""
    command = [str(binaries() / "promtool"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def binaries() -> Path:
    """Return the folder with `prometheus` and `promtool`; the first call downloads them.

    Skips the test where that is not possible.
    """
    found = _find_binaries()
    if isinstance(found, str):
        pytest.skip(f"no Prometheus: {found}")
    return found


@cache
def _find_binaries() -> Path | str:
    """Return the folder with the binaries, or the reason why there is none."""
    folder = cache_folder() / _PACKAGE
    found = folder / "usr" / "bin"
    try:
        with exclusive(folder):
            if not (found / "promtool").is_file():
                with filled(folder) as temporary:
                    _unpack(_download(temporary), temporary)
    except (_Unavailable, OSError) as error:
        return str(error)
    return found


def _download(folder: Path) -> Path:
    """Download the package into a folder, and return its file; a stale list of packages is updated once."""
    # As root, apt would download as another user, who cannot write to the folder.
    download = ["apt-get", "-o", "APT::Sandbox::User=root", "download", _PACKAGE]
    try:
        _run(download, folder)
    except _Unavailable:
        _run(["apt-get", "update"], folder)
        _run(download, folder)
    return next(folder.glob("*.deb"))


def _unpack(package: Path, folder: Path) -> None:
    _run(["dpkg-deb", "-x", str(package), str(folder)], folder)
    package.unlink()


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _Unavailable(f"{' '.join(command)}: not within {_DOWNLOAD_SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise _Unavailable(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")
