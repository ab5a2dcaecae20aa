"""`make audit` fails exactly for advisories that are not accepted; it queries a database of the test's own."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from glassflow_dagster.local.ports import free_port

ADVISORY = {
    "id": "GHSA-aaaa-bbbb-cccc",
    "aliases": ["CVE-2026-12345"],
    "summary": "bad",
    "affected": [
        {
            "package": {"name": "one", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


class Database(BaseHTTPRequestHandler):
    """A database with one advisory, for the package `one`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = {"vulns": [ADVISORY]} if asked["package"]["name"] == "one" else {}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def audit(project: Path, folder: Path, url: str, accepted: str = "") -> tuple[int, str]:
    lock, advisories = folder / "requirements.lock", folder / "advisories.toml"
    lock.write_text(f"one==1.0 \\\n    --hash=sha256:{'0' * 64}\ntwo==2.0 \\\n    --hash=sha256:{'1' * 64}\n")
    advisories.write_text(accepted)
    command = [sys.executable, str(project / ".ci" / "audit.py"), "--osv-url", url]
    done = subprocess.run(
        [*command, "--lock", str(lock), "--advisories", str(advisories)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_an_advisory_that_nobody_accepted_fails(project: Path, tmp_path: Path, database: str) -> None:
    code, said = audit(project, tmp_path, database)
    assert (code, said) == (
        1,
        "one 1.0: CVE-2026-12345, GHSA-aaaa-bbbb-cccc (fixed in 1.1); update it, or accept it with a reason\n",
    )


def test_an_advisory_that_is_accepted_by_any_of_its_names_passes(project: Path, tmp_path: Path, database: str) -> None:
    listed = '[[accepted]]\nid = "CVE-2026-12345"\nreason = "unused"\n[[accepted]]\nid = "GHSA-old"\nreason = "x"\n'
    code, said = audit(project, tmp_path, database, listed)
    assert code == 0, said
    assert "accepted: one 1.0: CVE-2026-12345, GHSA-aaaa-bbbb-cccc (fixed in 1.1): unused\n" in said
    assert "GHSA-old is accepted, but no longer reported; remove it from the list\n" in said
    assert "audit: 2 packages, no advisory that is not accepted\n" in said


def test_where_nothing_can_be_asked_that_is_said_loudly(project: Path, tmp_path: Path) -> None:
    code, said = audit(project, tmp_path, f"http://127.0.0.1:{free_port()}/")
    assert code == 0
    assert "NOT AUDITED: the advisories at http://127.0.0.1:" in said
    assert "Connection refused" in said
    assert "!!!!!!!!!!" in said
