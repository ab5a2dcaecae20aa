"""The hosts of the tests: they see each other by their names, and nothing else of each other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import NETWORKS, Host, Network, missing, running_network
from tests.support.waiting import wait_until

PORT = 8000
FETCH = f"import sys, urllib.request as r; print(r.urlopen(f'http://{{sys.argv[1]}}:{PORT}/', timeout=5).status)"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if reason := missing():
        pytest.skip(reason)
    with running_network(tmp_path / "network", ("one", "two", "three")) as network:
        yield network


def run(host: Host, log: Path, *command: str) -> str:
    """Run a command on a host; return what it prints."""
    host.start(command, {}, log).wait(60)
    return log.read_text()


def serve(host: Host, log: Path) -> None:
    """Serve the files of a host's disk, and wait until it listens."""
    host.start(
        [sys.executable, "-u", "-m", "http.server", str(PORT), "--bind", host.address, "--directory", str(host.disk)],
        {},
        log,
    )
    wait_until(lambda: "Serving" in log.read_text(), "the host serves", evidence=log.read_text)


def test_they_share_a_network_with_names_and_no_disk(network: Network, tmp_path: Path) -> None:
    one, two = network["one"], network["two"]
    assert run(one, tmp_path / "name", "hostname") == "one\n"
    serve(one, tmp_path / "server")
    assert run(two, tmp_path / "fetch", sys.executable, "-c", FETCH, "one") == "200\n"
    write = f"touch {two.disk}/file; ls {two.disk}"
    assert run(two, tmp_path / "write", "bash", "-c", write) == "file\n"
    assert run(one, tmp_path / "list", "ls", str(one.disk)) == ""
    assert list(one.disk.iterdir()) == []


def test_a_lost_one_is_gone_with_all_its_processes(network: Network, tmp_path: Path) -> None:
    one, two = network["one"], network["two"]
    serve(one, tmp_path / "server")
    assert one.processes()
    one.lose()
    assert one.processes() == {}
    assert "refused" in run(two, tmp_path / "fetch", sys.executable, "-c", FETCH, "one")


def test_one_that_is_cut_off_goes_on_alone(network: Network, tmp_path: Path) -> None:
    one, two = network["one"], network["two"]
    serve(one, tmp_path / "server")
    one.cut(off=True)
    assert "URLError" in run(two, tmp_path / "cut", sys.executable, "-c", FETCH, "one")
    assert one.processes()
    one.cut(off=False)
    wait_until(lambda: "200" in run(two, tmp_path / "again", sys.executable, "-c", FETCH, "one"), "it is reached again")


def test_two_that_are_cut_from_each_other_are_still_reached_by_the_third(network: Network, tmp_path: Path) -> None:
    one, two, three = (network[name] for name in ("one", "two", "three"))
    serve(one, tmp_path / "server")
    # Each has the address of the other one by now.
    assert "200" in run(two, tmp_path / "before", sys.executable, "-c", FETCH, "one")
    resent = two.resent()
    one.cut_from(two, off=True)
    assert "timed out" in run(two, tmp_path / "cut", sys.executable, "-c", FETCH, "one")
    assert two.resent() > resent
    assert "200" in run(three, tmp_path / "third", sys.executable, "-c", FETCH, "one")
    one.cut_from(two, off=False)
    assert "200" in run(two, tmp_path / "after", sys.executable, "-c", FETCH, "one")


def test_this_process_listens_on_one_and_only_there(network: Network, tmp_path: Path) -> None:
    one, two = network["one"], network["two"]
    with one.listen(PORT) as listening:
        command = f"import socket; print(socket.create_connection(('one', {PORT})).recv(9))"
        log = tmp_path / "client"
        client = two.start([sys.executable, "-c", command], {}, log)
        listening.settimeout(60)
        connection, (address, _) = listening.accept()
        with connection:
            connection.sendall(b"reached")
        client.wait(60)
    assert (address, log.read_text()) == (two.address, "b'reached'\n")


def test_a_slow_one_is_still_reached(network: Network, tmp_path: Path) -> None:
    one, two = network["one"], network["two"]
    serve(one, tmp_path / "server")
    one.slow_down(10_000)
    shown = ["tc", "-n", one.namespace, "qdisc", "show"]
    assert "rate 80Kbit" in subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    assert "200" in run(two, tmp_path / "fetch", sys.executable, "-c", FETCH, "one")
    one.speed_up()
    assert "tbf" not in subprocess.run(shown, check=True, capture_output=True, text=True).stdout


KILLED = """
import sys
from pathlib import Path
from tests.cluster.hosts import running_network
with running_network(Path(sys.argv[1]), ["one"]) as network:
    network["one"].start(["sleep", "600"], {}, Path(sys.argv[1]) / "log")
    print(network["one"].namespace, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        namespace = process.stdout.readline().strip()
        left = Host("one", namespace, "", tmp_path, tmp_path)
        wait_until(lambda: any("sleep" in line for line in left.processes().values()), "its program runs")
        process.kill()
    with running_network(tmp_path / "next", ("two",)):
        assert not Path(f"/run/netns/{namespace}").exists()
        assert not Path(f"/sys/class/net/{namespace.partition('h')[0]}").exists()


def test_the_network_of_another_process_is_left_alone(network: Network, tmp_path: Path) -> None:
    """Processes count from their ids, which may be close together."""
    number = (int(network.address.split(".")[2]) + 1) % NETWORKS
    # Fails where another process has it already, which is as good.
    added = subprocess.run(["ip", "link", "add", f"gf{number}", "type", "bridge"], check=False).returncode == 0
    try:
        with running_network(tmp_path / "second", ("one",)) as second:
            assert second.address not in {network.address, f"10.99.{number}.1"}
    finally:
        if added:
            subprocess.run(["ip", "link", "delete", f"gf{number}"], check=True)
