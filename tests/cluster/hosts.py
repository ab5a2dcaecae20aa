"""Hosts of their own on this machine: network namespaces with an address, a name and a disk each.

They share nothing but a network. Its first address is this machine's own, where Kafka, ClickHouse, the object store and
the launcher are. Programs (Python, this package, the cache of the jars) have the same paths on all of them, as on hosts
that were made from one image.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from tests.support.waiting import wait_until

# More than run at the same time, such as those of pytest-xdist.
NETWORKS = 200
_numbers = count(os.getpid())
_PREFIX_BITS = 24
# An address of Ethernet that no interface has.
_NOBODY = "02:00:00:00:00:00"
_CLONE_NEWNET = 0x40000000

# Runs a command with a name, an own file of names, and an empty disk at a path that the others have, too.
_IN_HOST = """
name=$1 disk=$2 hosts=$3; shift 3
hostname "$name"
mount -t tmpfs tmpfs "$disk"
mount --bind "$hosts" /etc/hosts
exec "$@"
"""


def missing() -> str:
    """Return why this machine can have no such hosts; empty where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "nsenter", "unshare", "mount") if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    name = f"gf{os.getpid()}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces are not allowed: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


@dataclass
class Host:
    """A host of the network. disk: the path of its disk, which only its own processes see."""

    name: str
    namespace: str
    address: str
    disk: Path
    hosts_file: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        """Start a process of this host, with an empty disk that only it and its children see, for as long as they run.

        log: for its output, on this machine's disk.
        """
        prefix = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        prefix += ["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-ec", _IN_HOST, "host"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*prefix, self.name, str(self.disk), str(self.hosts_file), *command],
                env={**os.environ, "SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_DIRS": str(self.disk), **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def processes(self) -> dict[int, str]:
        """Return the command lines of this host's processes by their ids."""
        listed = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        found: dict[int, str] = {}
        for pid in map(int, listed.stdout.split()):
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    def lose(self) -> None:
        """End all processes of this host at once, and its disk with them."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self.started:
            process.wait()
        wait_until(lambda: not self.processes(), f"all processes of {self.name} have ended")

    def lose_power(self) -> None:
        """Lose the host as in a power failure: nobody is told that its connections have ended."""
        self.cut(off=True)
        self.lose()

    def cut(self, *, off: bool) -> None:
        """Cut this host off from the network, or connect it again."""
        _ip("link", "set", f"v{self.namespace}", "down" if off else "up")

    def cut_from(self, other: "Host", *, off: bool) -> None:
        """Lose all packets between this host and another one, in both directions, or let them pass again."""
        for one, two in ((self, other), (other, self)):
            device = ("dev", f"e{one.namespace}")
            where = ("lladdr", _NOBODY, *device, "nud", "permanent") if off else device
            _ip("-n", one.namespace, "neighbour", "replace" if off else "delete", two.address, *where)

    def notice_dead_peers_soon(self) -> None:
        """Take a connection for dead whose peer has not answered for 13 s, not for a quarter of an hour."""
        setting = "/proc/sys/net/ipv4/tcp_retries2"
        command = ["ip", "netns", "exec", self.namespace, "tee", setting]
        subprocess.run(command, input=b"5", check=True, stdout=subprocess.DEVNULL)

    def resent(self) -> int:
        """Return how many TCP segments this host has sent again, since nobody had confirmed them."""
        command = ["ip", "netns", "exec", self.namespace, "cat", "/proc/net/snmp"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])

    def slow_down(self, bytes_a_second: int) -> None:
        """Limit what this host sends."""
        rate = ("tbf", "rate", f"{bytes_a_second}bps", "burst", "4kb", "latency", "2s")
        _tc(self.namespace, "replace", "root", *rate)

    def speed_up(self) -> None:
        """Take the limit away."""
        _tc(self.namespace, "delete", "root")

    def listen(self, port: int) -> socket.socket:
        """Return a socket of this process that listens on a port of this host."""
        with ThreadPoolExecutor(1) as apart:
            return apart.submit(self._listen, port).result()

    def _listen(self, port: int) -> socket.socket:
        """Move the thread to this host, for ever; return a socket as of `listen`."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{self.namespace}").open() as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"the network of {self.name} cannot be entered")
        return socket.create_server((self.address, port))


@dataclass(frozen=True)
class Network:
    """A network of hosts. address: that of this machine in it."""

    address: str
    hosts: Mapping[str, Host]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]


@contextmanager
def running_network(folder: Path, names: Sequence[str]) -> Iterator[Network]:
    """Make a network of this machine and of hosts with these names, while the block runs; afterwards all have ended."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    _remove_leftovers()
    with ExitStack() as stack:
        number = _add_bridge()
        bridge, subnet = f"gf{number}", f"10.99.{number}"
        stack.callback(_ip, "link", "delete", bridge)
        _ip("link", "set", bridge, "alias", _owner(os.getpid()))
        addresses = {name: f"{subnet}.{index}" for index, name in enumerate(names, 10)}
        hosts_file = folder / "hosts"
        known = {"localhost": "127.0.0.1", **addresses}
        hosts_file.write_text("".join(f"{address} {name}\n" for name, address in known.items()))
        _ip("address", "add", f"{subnet}.1/{_PREFIX_BITS}", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts: dict[str, Host] = {}
        for index, (name, address) in enumerate(addresses.items()):
            namespace = f"{bridge}h{index}"
            _connect(stack, namespace, bridge, address)
            hosts[name] = Host(name, namespace, address, disk, hosts_file)
            stack.callback(hosts[name].lose)
        yield Network(f"{subnet}.1", hosts)


def _add_bridge() -> int:
    """Add the bridge of a network that no other process has; return the network's number."""
    # Not the number of the last one: the kernel removes the parts of one that has just ended in the background.
    for number in islice(_numbers, NETWORKS):
        command = ["ip", "link", "add", f"gf{number % NETWORKS}", "type", "bridge"]
        added = subprocess.run(command, capture_output=True, text=True, check=False)
        if added.returncode == 0:
            return number % NETWORKS
        if "File exists" not in added.stderr:
            break
    raise RuntimeError(f"{' '.join(command)}: {added.stderr.strip()}")


def _remove_leftovers() -> None:
    """Remove the networks of processes that were killed, and end what still runs in them."""
    for file in Path("/sys/class/net").glob("gf*/ifalias"):
        try:
            owner = file.read_text().strip()
        except OSError:
            # Removed meanwhile.
            continue
        # Without an owner, it is being made.
        if not owner or _owner(int(owner.partition(" ")[0])) == owner:
            continue
        bridge = file.parent.name
        # Another process may remove the same one.
        with suppress(subprocess.CalledProcessError):
            for namespace in Path("/run/netns").glob(f"{bridge}h*"):
                Host("", namespace.name, "", Path(), Path()).lose()
                _ip("netns", "delete", namespace.name)
            _ip("link", "delete", bridge)


def _owner(pid: int) -> str:
    """Return what tells a process from earlier and later ones with its id; empty where there is none."""
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
    return f"{pid} {started}"


def _connect(stack: ExitStack, namespace: str, bridge: str, address: str) -> None:
    """Make a namespace with an address of its own on the bridge; the stack removes it."""
    _ip("netns", "add", namespace)
    stack.callback(_ip, "netns", "delete", namespace)
    outer, inner = f"v{namespace}", f"e{namespace}"
    _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
    _ip("link", "set", outer, "master", bridge, "up")
    _ip("-n", namespace, "address", "add", f"{address}/{_PREFIX_BITS}", "dev", inner)
    _ip("-n", namespace, "link", "set", inner, "up")
    _ip("-n", namespace, "link", "set", "lo", "up")


def _tc(namespace: str, action: str, *arguments: str) -> None:
    device = ("dev", f"e{namespace}")
    subprocess.run(["tc", "-n", namespace, "qdisc", action, *device, *arguments], check=True, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
