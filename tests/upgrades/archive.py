"""Make an archive of what a released version leaves: Kafka's log, ClickHouse's data, and the state folder.

It is made once for each release, with the release's own program; `test_upgrades.py` continues it with the code of
today:

    python -m tests.upgrades.archive PROGRAM tests/upgrades/VERSION.tar.xz

PROGRAM: the command `glassflow-dagster` of an environment with the release.
"""

import argparse
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import clickhouse_connect
import yaml
from clickhouse_connect.driver.client import Client
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.local.ports import free_port
from tests.support.sending import send
from tests.support.waiting import wait_until
from tests.upgrades import kept


def main() -> int:
    """Make the archive; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name) / "kept"
        folder.mkdir()
        release = _Release(arguments.program.absolute(), folder)
        release.run("stack", "up", "--data", "stack", *release.ports)
        try:
            release.fill()
        finally:
            release.run("stack", "down", "--data", "stack")
        with tarfile.open(arguments.file, "w:xz") as archive:
            archive.add(folder, ".", filter=_without_working_files)
    print(f"{arguments.file}: {arguments.file.stat().st_size:,} bytes")
    return 0


_SECONDS = 300.0


class _Release:
    """A released version in a folder: with the embedded stack's data in `stack`, and the pipelines' in `state`."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._kafka, self._clickhouse = free_port(), free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "GLASSFLOW_KAFKA_BROKERS": f"127.0.0.1:{self._kafka}",
            "GLASSFLOW_CLICKHOUSE_URL": f"http://default:@127.0.0.1:{self._clickhouse}",
        }
        (folder / "pipelines").mkdir()
        for each in kept.definitions():
            (folder / "pipelines" / f"{each['pipeline_id']}.yaml").write_text(yaml.safe_dump(each))

    @property
    def ports(self) -> tuple[str, ...]:
        return ("--kafka-port", str(self._kafka), "--clickhouse-port", str(self._clickhouse))

    def run(self, *words: str) -> None:
        """Run a command of the program, for five minutes at most."""
        done = [self._program, *words]
        subprocess.run(done, cwd=self._folder, env=self._environment, check=True, timeout=_SECONDS)

    def fill(self) -> None:
        """Run each pipeline; the one of events is killed in its second batch."""
        client = clickhouse_connect.get_client(host="127.0.0.1", port=self._clickhouse)
        for statement in kept.TABLES:
            client.command(statement)
        brokers = f"127.0.0.1:{self._kafka}"
        admin = AdminClient({"bootstrap.servers": brokers})
        topics = [NewTopic(name, partitions, 1) for name, partitions in kept.TOPICS.items()]
        for made in admin.create_topics(topics).values():
            made.result(30)
        kept.send(brokers, "kept.events", map(kept.event, range(kept.FIRST)))
        send(brokers, "kept.events", [b"broken"])
        kept.send(brokers, "kept.readings", kept.READ)
        kept.send(brokers, "kept.users", kept.USERS[: kept.KNOWN])
        kept.send(brokers, "kept.orders", kept.ORDERED)
        for pipeline in (kept.EVENTS, kept.READINGS, kept.ORDERS):
            self.run("run", f"pipelines/{pipeline}.yaml", "--until-caught-up")
        kept.send(brokers, "kept.events", map(kept.event, range(kept.FIRST, kept.ALL)))
        self._die_in_a_batch(client)

    def _die_in_a_batch(self, client: Client) -> None:
        """Kill all processes of the driver when a part of its batch is in the table."""
        before = _count(client)
        command = [self._program, "run", f"pipelines/{kept.EVENTS}.yaml"]
        driver = subprocess.Popen(command, cwd=self._folder, env=self._environment, start_new_session=True)
        wait_until(lambda: _count(client) > before, "the second batch begins")
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        [(ledger, rows)] = client.query(
            f"SELECT (SELECT sum(read) FROM {kept.DATABASE}.glassflow_ledger WHERE pipeline_id = '{kept.EVENTS}'), "
            f"(SELECT count() FROM {kept.DATABASE}.events)"
        ).result_rows
        assert ledger == kept.FIRST + 1, f"the batch was over: {ledger} are read"
        print(f"killed when {rows - before:,} rows of the second batch were in the table")


def _count(client: Client) -> int:
    return int(client.query(f"SELECT count() FROM {kept.DATABASE}.events").result_rows[0][0])


def _without_working_files(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out logs, and the working files of the driver that was killed."""
    is_log = entry.name.endswith(".log") and "/kafka/data/" not in entry.name
    return None if is_log or Path(entry.name).name == "tmp" else entry


if __name__ == "__main__":
    sys.exit(main())
