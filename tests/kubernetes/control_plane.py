"""A Kubernetes cluster's control plane: a real etcd and a real kube-apiserver, with RBAC.

No controllers and no scheduler run beside them: `kubelet.py` and `operators.py` do what the tests need of those.
"""

import base64
import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

import yaml

from glassflow_dagster.local.ports import free_port
from tests.kubernetes.programs import folder as programs
from tests.support.waiting import wait_until

Object = dict[str, Any]

# Drivers find the server by its name in the cluster, at the port of its service.
PORT = 443
_SERVICES = "10.96.0.0/24"
_ADMIN_TOKEN = "of-the-tests"
_ANSWER_SECONDS = 30
_TOKEN_SECONDS = 24 * 3600
_PATCH = {"merge": "application/merge-patch+json", "apply": "application/apply-patch+yaml"}


class Refused(Exception):
    """The server's answer to a request that it does not do. code: of HTTP."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True)
class ControlPlane:
    """A running server. certificates: the folder of its certificate, `apiserver.crt`, and its key."""

    address: str
    certificates: Path
    token: str = _ADMIN_TOKEN

    @property
    def url(self) -> str:
        return f"https://{self.address}:{PORT}"

    @property
    def certificate(self) -> Path:
        """Return the server's certificate, with the authority's that has signed it."""
        return self.certificates / "apiserver.crt"

    def request(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Return the server's answer, as an administrator; raises `Refused`."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener().open(request, timeout=_ANSWER_SECONDS) as answer:
                content: Object = json.load(answer)
                return content
        except HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def items(self, path: str) -> list[Object]:
        """Return the objects of a collection."""
        found: list[Object] = self.get(path)["items"]
        return found

    def apply(self, path: str, manifest: Object) -> Object:
        """Create or change an object. path: of its collection."""
        where = f"{path}/{manifest['metadata']['name']}?{urlencode({'fieldManager': 'tests', 'force': 'true'})}"
        return self.request("PATCH", where, manifest, _PATCH["apply"])

    def set_status(self, path: str, status: Object) -> None:
        """Change the status of an object, which may be gone meanwhile."""
        try:
            self.request("PATCH", f"{path}/status", {"status": status}, _PATCH["merge"])
        except Refused as refused:
            if refused.code != 404:
                raise

    def delete(self, path: str, **options: object) -> None:
        """Delete an object, if it is there, and is the one that the preconditions among the options name."""
        try:
            self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except Refused as refused:
            if refused.code not in {404, 409}:
                raise

    def account_token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""
        body = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{quote(account)}/token"
        return str(self.request("POST", path, body)["status"]["token"])

    def write_kubeconfig(self, file: Path, namespace: str, token: str) -> None:
        """Write a configuration by which clients have a token. namespace: their default."""
        ca = base64.b64encode(self.certificate.read_bytes()).decode()
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": context}],
            "clusters": [{"name": "tests", "cluster": {"server": self.url, "certificate-authority-data": ca}}],
            "users": [{"name": "tests", "user": {"token": token}}],
        }
        file.write_text(yaml.safe_dump(content))

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )


@contextmanager
def running_control_plane(folder: Path, address: str) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver while the block runs. address: one of this machine's, for the server alone."""
    folder.mkdir(parents=True)
    certificates, key = folder / "certificates", folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{_ADMIN_TOKEN},tests,tests,system:masters\n")
    with ExitStack() as stack:
        etcd = _start_etcd(stack, folder)
        _start(
            stack,
            folder / "apiserver.log",
            "kube-apiserver",
            **{"etcd-servers": etcd, "bind-address": address, "advertise-address": address, "secure-port": str(PORT)},
            **{"cert-dir": str(certificates), "service-cluster-ip-range": _SERVICES, "authorization-mode": "RBAC"},
            **{"token-auth-file": str(folder / "tokens.csv"), "service-account-issuer": "https://kubernetes.default"},
            **{"service-account-key-file": str(key), "service-account-signing-key-file": str(key)},
        )
        plane = ControlPlane(address, certificates)
        wait_until(lambda: _is_ready(plane), "the server answers", evidence=(folder / "apiserver.log").read_text)
        yield plane


def _start_etcd(stack: ExitStack, folder: Path) -> str:
    """Start etcd, which need not outlive this machine; return its URL."""
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    _start(
        stack,
        folder / "etcd.log",
        "etcd",
        **{"data-dir": str(folder / "etcd"), "listen-client-urls": clients, "advertise-client-urls": clients},
        **{"listen-peer-urls": peers, "initial-advertise-peer-urls": peers, "initial-cluster": f"default={peers}"},
        **{"unsafe-no-fsync": "true"},
    )
    return clients


def _start(stack: ExitStack, log: Path, program: str, **options: str) -> None:
    """Start a program, which the stack ends."""
    # Ends with these tests, even if they are killed.
    prefix = ["setpriv", "--pdeathsig=KILL"]
    command = [*prefix, str(programs() / program), *(f"--{name}={value}" for name, value in options.items())]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(os.environ), stdout=output, stderr=output)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _is_ready(plane: ControlPlane) -> bool:
    """Return whether the server answers, and has made its roles."""
    try:
        plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
        plane.get("/api/v1/namespaces/default")
    except (OSError, Refused):
        return False
    return True


def collection(manifest: Mapping[str, Any], namespace: str) -> str:
    """Return the path of the collection that an object belongs to."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    plural = {"PodDisruptionBudget": "poddisruptionbudgets"}.get(kind, f"{kind.lower()}s")
    return f"{root}/namespaces/{namespace}/{plural}"


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
