"""A node: runs pods as processes of this machine, each in namespaces of its own, and tells the API server of them.

A pod has an address on the tests' network, a name, process ids and mounts of its own; instead of an image's layers it
sees this machine's files. What a pod sees of the cluster comes from the API server, as with a real kubelet: variables
from Secrets, volumes, the token of its service account, the names of services. Hooks and grace periods are kept.
"""

import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from glassflow_dagster.runtime.cache import cache_folder
from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.cluster.hosts import Host, Network
from tests.kubernetes.control_plane import PORT, ControlPlane, Object, Refused, now
from tests.support.processes import children

PROJECT = Path(__file__).parents[2]
NODE = "node"
_PAUSE = 0.3  # seconds
_ENTRYPOINT = PROJECT / "deploy" / "kubernetes" / "entrypoint.sh"
# Folders of this machine in which a pod gets folders of its own: writes go to its disk.
_WRITABLE = ("etc", "opt", "var", "run")
_ENDED = {"Succeeded", "Failed"}


class NotReady(Exception):
    """Something that a pod mounts or reads is not there yet."""


@dataclass
class Pod:
    """A pod that was started. hook: the command before it is ended; empty without one."""

    path: str
    uid: str
    labels: Mapping[str, str]
    host: Host
    container: str
    environment: Mapping[str, str]
    hook: list[str]
    process: "subprocess.Popen[bytes]"
    log: Path
    is_ending: bool = False
    is_reported: bool = False

    @property
    def first_process(self) -> int | None:
        """Return the id of the container's first process; None when it has ended."""
        return next(iter(children(self.process.pid)), None)

    def run_hook(self, seconds: float) -> None:
        """Run the hook in the pod's namespaces."""
        first = self.first_process
        if not self.hook or first is None:
            return
        enter = ["nsenter", f"--target={first}", "--mount", "--uts", "--net", "--pid", *self.hook]
        with self.log.open("ab") as output:
            subprocess.run(
                enter, env=dict(self.environment), stdout=output, stderr=output, timeout=seconds, check=False
            )

    def end(self, grace: float) -> None:
        """End the pod: the hook, then SIGTERM, and SIGKILL after the grace period (seconds)."""
        try:
            if grace:
                self.run_hook(grace)
                if first := self.first_process:
                    os.kill(first, signal.SIGTERM)
                self.process.wait(grace)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            pass
        # Its namespace of processes ends with it.
        with suppress(ProcessLookupError):
            if first := self.first_process:
                os.kill(first, signal.SIGKILL)
        self.process.wait()


@dataclass
class Kubelet:
    """The node of a cluster. folder: for volumes and logs."""

    plane: ControlPlane
    network: Network
    folder: Path
    namespace: str
    log_port: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _ending: list[threading.Thread] = field(default_factory=list)
    _hosts_text: str = ""

    def processes(self, labels: Mapping[str, str]) -> dict[int, str]:
        """Return the command lines of the processes in the pods with these labels, by their ids."""
        found = [pod for pod in list(self.pods.values()) if pod.labels.items() >= labels.items()]
        return {pid: line for pod in found for pid, line in pod.host.processes().items()}

    def run(self) -> None:
        """Do what is to be done, until the node is stopped; then end its pods."""
        try:
            while not self._stopped.wait(_PAUSE):
                listed = self.plane.items(f"/api/v1/namespaces/{self.namespace}/pods")
                for manifest in listed:
                    self._look_at(manifest)
                self._end_removed({manifest["metadata"]["uid"] for manifest in listed})
                self._write_names()
        finally:
            for pod in self.pods.values():
                pod.end(0)
            for thread in self._ending:
                thread.join()

    def stop(self) -> None:
        self._stopped.set()

    def _look_at(self, manifest: Object) -> None:
        """Start a pod that is new, report one that has ended, and end one that was deleted."""
        pod = self.pods.get(manifest["metadata"]["uid"])
        is_deleted = bool(manifest["metadata"].get("deletionTimestamp"))
        if pod is None:
            path = self._path(manifest)
            if is_deleted or manifest["status"].get("phase") in _ENDED:
                if is_deleted:
                    self.plane.delete(path, gracePeriodSeconds=0)
                return
            try:
                self._start(manifest, path)
            except (NotReady, Refused):
                # Or it was deleted meanwhile; the next look tells.
                return
        elif is_deleted and not pod.is_ending:
            pod.is_ending = True
            grace = float(manifest["metadata"].get("deletionGracePeriodSeconds") or 0)
            self._ending.append(threading.Thread(target=self._end_deleted, args=(pod, grace), daemon=True))
            self._ending[-1].start()
        elif pod.process.poll() is not None and not pod.is_reported:
            pod.is_reported = True
            self._report(pod, pod.process.returncode)

    def _end_deleted(self, pod: Pod, grace: float) -> None:
        pod.end(grace)
        self.plane.delete(pod.path, gracePeriodSeconds=0, preconditions={"uid": pod.uid})

    def _end_removed(self, uids: set[str]) -> None:
        """End the pods that the API server has no more, and free their addresses."""
        for uid in [uid for uid in self.pods if uid not in uids]:
            self.pods[uid].end(0)
            del self.pods[uid]

    def _start(self, manifest: Object, path: str) -> None:
        """Start a pod's container; raises `NotReady` where something is missing."""
        metadata, spec = manifest["metadata"], manifest["spec"]
        [container] = spec["containers"]
        host = self._free_host(metadata["name"])
        folder = self.folder / metadata["uid"]
        folder.mkdir(exist_ok=True)
        environment = self._environment(manifest, container, host.address)
        if not spec.get("nodeName"):
            self._bind(metadata["name"])
        volumes = {volume["name"]: self._volume(volume, folder, manifest) for volume in spec.get("volumes", [])}
        script = folder / "start.sh"
        mounts = container.get("volumeMounts", [])
        mounts = container.get("volumeMounts", [])
        script.write_text(_script(host, [(volumes[mount["name"]], mount["mountPath"]) for mount in mounts]))
        command = container.get("command") or ["bash", str(_ENTRYPOINT)]
        log = folder / "log"
        enter = ["nsenter", f"--net=/run/netns/{host.namespace}", "unshare", "--mount", "--uts", "--ipc"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*enter, "--propagation", "private", "bash", str(script), *command, *container.get("args", [])],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        pod = Pod(
            path, metadata["uid"], metadata.get("labels", {}), host, container["name"], environment, hook, process, log
        )
        self.pods[pod.uid] = pod
        self._report(pod, None)

    def _free_host(self, name: str) -> Host:
        """Return a host of the network, with the pod's name, that no other pod has."""
        used = {pod.host.namespace for pod in self.pods.values()}
        for host in self.network.hosts.values():
            if host.namespace not in used:
                return Host(name, host.namespace, host.address, host.disk, host.hosts_file)
        raise NotReady("an address")

    def _environment(self, manifest: Object, container: Object, address: str) -> dict[str, str]:
        """Return a container's variables: the image's, and those of the pod; nothing of this process's own."""
        java = java_environment(find_java())
        folders = [str(Path(sys.executable).parent), *([f"{java['JAVA_HOME']}/bin"] if "JAVA_HOME" in java else [])]
        found = {
            # As in the Dockerfile.
            "PATH": os.pathsep.join([*folders, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
            "GLASSFLOW_CACHE": str(cache_folder()),
            "SPARK_HOME": str(pyspark_folder()),
            "PYTHONPATH": str(PROJECT),
            "HOME": "/root",
            # Each pod has a first process with the id 1, by which these files would be named.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:-UsePerfData",
            "KUBERNETES_SERVICE_HOST": self.plane.address,
            "KUBERNETES_SERVICE_PORT": str(PORT),
        }
        fields = {
            "status.podIP": address,
            **{f"metadata.{key}": manifest["metadata"][key] for key in ("name", "namespace")},
        }
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            if reference := source.get("secretKeyRef"):
                found[variable["name"]] = self._secret(reference["name"])[reference["key"]].decode()
            elif reference := source.get("fieldRef"):
                found[variable["name"]] = fields[reference["fieldPath"]]
            else:
                found[variable["name"]] = variable.get("value", "")
        return found

    def _volume(self, volume: Object, folder: Path, manifest: Object) -> Path:
        """Return the folder of a volume, filled; raises `NotReady` where its source is not there."""
        place = folder / volume["name"]
        place.mkdir(exist_ok=True)
        for source in volume.get("projected", {}).get("sources", [volume]):
            for name, content in self._files(source, manifest).items():
                (place / name).write_bytes(content)
        return place

    def _files(self, source: Object, manifest: Object) -> dict[str, bytes]:
        """Return the files of a volume's source."""
        if secret := source.get("secret"):
            return self._secret(secret["secretName"])
        if config_map := source.get("configMap"):
            found = self._get(f"configmaps/{config_map['name']}").get("data", {})
            paths = {item["key"]: item["path"] for item in config_map.get("items", [])} or {key: key for key in found}
            return {path: found[key].encode() for key, path in paths.items()}
        if token := source.get("serviceAccountToken"):
            account = manifest["spec"]["serviceAccountName"]
            return {token["path"]: self.plane.account_token(self.namespace, account).encode()}
        if source.get("downwardAPI"):
            return {"namespace": self.namespace.encode()}
        assert "emptyDir" in source, f"{source}: this node has no such volume"
        return {}

    def _secret(self, name: str) -> dict[str, bytes]:
        return {key: b64decode(value) for key, value in self._get(f"secrets/{name}").get("data", {}).items()}

    def _get(self, path: str) -> Object:
        """Return an object of the namespace; raises `NotReady` where it is not there."""
        try:
            return self.plane.get(f"/api/v1/namespaces/{self.namespace}/{path}")
        except Refused as refused:
            raise NotReady(path) from refused

    def _bind(self, name: str) -> None:
        """Do the scheduler's part."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.plane.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", body)

    def _report(self, pod: Pod, code: int | None) -> None:
        """Report that a pod runs, or has ended with an exit code."""
        is_up = code is None
        phase = "Running" if is_up else "Failed" if code else "Succeeded"
        state = {"running": {"startedAt": now()}} if is_up else {"terminated": {"exitCode": code, "finishedAt": now()}}
        container = {"name": pod.container, "image": "image", "imageID": "", "restartCount": 0}
        ready = [{"type": kind, "status": str(is_up)} for kind in ("Ready", "ContainersReady")]
        status = {
            "phase": phase,
            "podIP": pod.host.address,
            "podIPs": [{"ip": pod.host.address}],
            "conditions": ready,
            "containerStatuses": [{**container, "ready": is_up, "started": is_up, "state": state}],
        }
        self.plane.set_status(pod.path, status)

    def _write_names(self) -> None:
        """Do the part of the cluster's DNS: pods find services by the file of names."""
        names = {"localhost": "127.0.0.1", "kubernetes.default.svc": self.plane.address}
        pods = [pod for pod in self.pods.values() if pod.process.poll() is None]
        names |= {pod.host.name: pod.host.address for pod in pods}
        for service in self.plane.items(f"/api/v1/namespaces/{self.namespace}/services"):
            selector = service["spec"].get("selector", {})
            for pod in pods:
                if selector and pod.labels.items() >= selector.items():
                    names[f"{service['metadata']['name']}.{self.namespace}.svc"] = pod.host.address
        text = "".join(f"{address} {name}\n" for name, address in names.items())
        if text != self._hosts_text:
            # The same file, which pods have mounted.
            next(iter(self.network.hosts.values())).hosts_file.write_text(text)
            self._hosts_text = text

    def _path(self, manifest: Object) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{manifest['metadata']['name']}"


def _script(host: Host, mounts: list[tuple[Path, str]]) -> str:
    """Return the script that mounts a pod's volumes and starts its container, which has its own process ids."""
    disk = shlex.quote(str(host.disk))
    lines = ["set -e", f"hostname {host.name}", f"mount -t tmpfs tmpfs {disk}"]
    for top in _WRITABLE:
        own = f"{disk}/{top}"
        lines.append(f"mkdir -p {own}/upper {own}/work")
        lines.append(f"mount -t overlay overlay -o lowerdir=/{top},upperdir={own}/upper,workdir={own}/work /{top}")
    lines.append(f"mount --bind {shlex.quote(str(host.hosts_file))} /etc/hosts")
    lines.append(f"mkdir -p /opt/glassflow && cp {shlex.quote(str(_ENTRYPOINT.parent))}/* /opt/glassflow/")
    for source, target in mounts:
        lines.append(f"mkdir -p {shlex.quote(target)} && mount --bind {shlex.quote(str(source))} {shlex.quote(target)}")
    lines.append(f"cd {disk}")
    lines.append('exec unshare --pid --fork --kill-child --mount-proc -- "$@"')
    return "\n".join(lines) + "\n"


class _Logs(BaseHTTPRequestHandler):
    """Serves the logs of a node's pods, as the API server asks for them."""

    def __init__(self, kubelet: Kubelet, *arguments: object) -> None:
        self._kubelet = kubelet
        super().__init__(*arguments)  # type: ignore[arg-type] - as the server gives them

    def do_GET(self) -> None:
        """Answer /containerLogs/NAMESPACE/POD/CONTAINER."""
        url = urlsplit(self.path)
        name = url.path.split("/")[3]
        lines = int(parse_qs(url.query).get("tailLines", ["1000"])[0])
        found = [pod.log for pod in list(self._kubelet.pods.values()) if pod.host.name == name]
        text = found[-1].read_bytes().splitlines(keepends=True)[-lines:] if found else []
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b"".join(text))

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the base's name
        """Write nothing."""


class _LogServer(ThreadingHTTPServer):
    """Lets errors end the thread of a request, so that pytest sees them; not those of a client that has gone."""

    def handle_error(self, *_: object) -> None:
        """Raise the error that is handled."""
        error = sys.exc_info()[1]
        if error and not isinstance(error, OSError):
            raise error


@contextmanager
def running_kubelet(plane: ControlPlane, network: Network, folder: Path, namespace: str) -> Iterator[Kubelet]:
    """Run a node for the pods of a namespace while the block runs; afterwards its pods have ended."""
    folder.mkdir(parents=True)
    assert shutil.which("unshare"), "see tests.cluster.hosts.missing"
    kubelet = Kubelet(plane, network, folder, namespace)
    server = _LogServer((network.address, 0), partial(_Logs, kubelet))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.certificate, plane.certificates / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    _add_node(plane, network.address, server.server_port)
    node, logs = (threading.Thread(target=target, daemon=True) for target in (kubelet.run, server.serve_forever))
    node.start()
    logs.start()
    try:
        yield kubelet
    finally:
        kubelet.stop()
        node.join()
        server.shutdown()
        server.server_close()


def _add_node(plane: ControlPlane, address: str, port: int) -> None:
    """Add the node, with the port of its logs."""
    plane.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    plane.set_status(
        f"/api/v1/nodes/{NODE}",
        {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    )
