"""A Kubernetes API server for tests: the real kube-apiserver, and etcd; no node, so that no pod ever starts.

kube-apiserver is built by Go once, into the cache, and etcd is unpacked from Debian's package: some minutes, so only
`make test-kubernetes` does it. Programs on the PATH are used as they are.
"""

import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from tests.waiting import wait_until

BUILDS = "GLASSFLOW_TEST_KUBERNETES"
CONTEXT = "test"
_VERSION, _STAGING = "v1.31.4", "v0.31.4"
_TOKEN = "of-the-test"
# The parts of Kubernetes that its module takes from its own folders.
_MODULES = (
    "api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go", "cloud-provider",
    "cluster-bootstrap", "code-generator", "component-base", "component-helpers", "controller-manager", "cri-api",
    "cri-client", "csi-translation-lib", "dynamic-resource-allocation", "endpointslice", "kms", "kube-aggregator",
    "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics", "mount-utils",
    "pod-security-admission", "sample-apiserver", "sample-cli-plugin", "sample-controller",
)  # fmt: skip
_PROGRAM = """\
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
"""


def missing() -> str:
    """Return why there is no API server; empty where there is one, or it may be built."""
    absent = [name for name in ("kube-apiserver", "etcd") if _find(name) is None]
    return "" if not absent or os.environ.get(BUILDS) else f"no {' and '.join(absent)}; make test-kubernetes gets them"


@contextmanager
def running_api_server(folder: Path) -> Iterator[Path]:
    """Run an API server while the block runs; yield a kubeconfig with the context `CONTEXT`."""
    folder.mkdir(parents=True)
    server, etcd = _find("kube-apiserver") or _build_server(), _find("etcd") or _unpack_etcd()
    client, peer, port = free_port(), free_port(), free_port()
    key = folder / "accounts.pem"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (folder / "tokens").write_text(f"{_TOKEN},tester,tester,system:masters\n")
    with ExitStack() as stack:
        at, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        listen = ("--listen-client-urls", at, "--advertise-client-urls", at, "--listen-peer-urls", peers)
        command = [str(etcd), "--data-dir", str(folder / "etcd"), *listen]
        _start(
            stack, [*command, "--initial-cluster", f"default={peers}", "--initial-advertise-peer-urls", peers], folder
        )
        accounts = ("--service-account-issuer=https://test", f"--service-account-key-file={key}")
        options = (
            f"--etcd-servers={at}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={folder}",
            f"--token-auth-file={folder}/tokens", "--authorization-mode=RBAC", *accounts,
            f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        _start(stack, [str(server), *options], folder)
        config = folder / "kubeconfig"
        config.write_text(yaml.safe_dump(_kubeconfig(f"https://127.0.0.1:{port}", folder / "apiserver.crt")))
        log = folder / f"{server.name}.log"
        wait_until(
            lambda: _is_ready(port, folder / "apiserver.crt"),
            "the API server is ready",
            evidence=lambda: log.read_text()[-2000:],
        )
        yield config


def _kubeconfig(server: str, certificate: Path) -> dict[str, object]:
    cluster = {"server": server, "certificate-authority": str(certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": _TOKEN}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
    }


def _is_ready(port: int, certificate: Path) -> bool:
    """Return whether the server says so. certificate: which it makes itself when it starts."""
    if not certificate.exists():
        return False
    context = ssl.create_default_context(cafile=str(certificate))
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {_TOKEN}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _start(stack: ExitStack, command: Sequence[str], folder: Path) -> None:
    """Start a server, which the stack ends."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _find(name: str) -> Path | None:
    """Return a program: that on the PATH, or that of the cache."""
    if installed := shutil.which(name):
        return Path(installed)
    cached = _folder() / name / name
    return cached if cached.exists() else None


def _folder() -> Path:
    return cache_folder() / "kubernetes" / _VERSION


def _build_server() -> Path:
    """Build kube-apiserver from Kubernetes' module into the cache."""
    folder = _folder() / "kube-apiserver"
    with exclusive(folder):
        if not folder.exists():
            with filled(folder) as temporary:
                source = temporary / "source"
                source.mkdir()
                replaced = "".join(f"\tk8s.io/{name} => k8s.io/{name} {_STAGING}\n" for name in _MODULES)
                head = f"module test\n\ngo 1.22.0\n\nrequire k8s.io/kubernetes {_VERSION}\n"
                (source / "go.mod").write_text(f"{head}\nreplace (\n{replaced})\n")
                (source / "main.go").write_text(_PROGRAM)
                for command in (("mod", "tidy"), ("build", "-o", str(temporary / "kube-apiserver"), ".")):
                    subprocess.run(["go", *command], cwd=source, check=True)
                shutil.rmtree(source)
    return folder / "kube-apiserver"


def _unpack_etcd() -> Path:
    """Download Debian's package of etcd, and unpack it into the cache without installing it."""
    folder = _folder() / "etcd"
    with exclusive(folder):
        if not folder.exists():
            with filled(folder) as temporary:
                subprocess.run(["apt-get", "download", "etcd-server"], cwd=temporary, check=True)
                [package] = temporary.glob("etcd-server_*.deb")
                subprocess.run(["dpkg", "-x", str(package), str(temporary / "unpacked")], check=True)
                shutil.copy2(temporary / "unpacked" / "usr" / "bin" / "etcd", temporary / "etcd")
    return folder / "etcd"
