"""Kubernetes' own programs, which no package of Python's or Debian's has: kube-apiserver, etcd and helm.

    python -m tests.kubernetes.programs

Go builds them once, from its module proxy, into the cache: some minutes, and 2 GB of Go's own cache meanwhile.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled

KUBERNETES = "1.31.4"
_ETCD, _HELM = "3.5.16", "3.16.4"
_PACKAGES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v3/cmd/helm",
}
# Parts of Kubernetes that its module takes from its own folders, which a module proxy does not serve: it has them
# under a version of their own.
_STAGING = (
    "api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go", "cloud-provider",
    "cluster-bootstrap", "code-generator", "component-base", "component-helpers", "controller-manager", "cri-api",
    "cri-client", "csi-translation-lib", "dynamic-resource-allocation", "endpointslice", "kms", "kube-aggregator",
    "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics", "mount-utils",
    "pod-security-admission", "sample-apiserver", "sample-cli-plugin", "sample-controller",
)  # fmt: skip


def folder() -> Path:
    """Return the folder of the programs; they may not be built yet."""
    return cache_folder() / "kubernetes" / f"{KUBERNETES}-etcd-{_ETCD}-helm-{_HELM}"


def missing() -> str:
    """Return what to do before the programs can run; empty where they are there."""
    if all((folder() / name).is_file() for name in _PACKAGES):
        return ""
    return "kube-apiserver, etcd and helm are not built; run: make test-kubernetes"


def build(report: Callable[[str], None]) -> None:
    """Build the programs unless they are there; raises `GlassflowError` without Go, and where they cannot be built."""
    with exclusive(folder(), lambda: report("another process is building the programs; waiting for it")):
        if not missing():
            return
        go = shutil.which("go")
        if go is None:
            raise GlassflowError(
                "the tests on Kubernetes build kube-apiserver, etcd and helm; install Go 1.22 or newer"
            )
        with filled(folder()) as temporary:
            (temporary / "go.mod").write_text(_module())
            for name, package in _PACKAGES.items():
                report(f"building {name} (once, some minutes)")
                _run([go, "build", "-mod=mod", "-trimpath", "-ldflags", _link_flags(), "-o", name, package], temporary)


def _module() -> str:
    """Return a module that needs the programs' packages, in versions that go together."""
    minor = KUBERNETES.partition(".")[2]
    lines = ["module programs", "go 1.22.0"]
    lines += [f"require k8s.io/kubernetes v{KUBERNETES}", f"require helm.sh/helm/v3 v{_HELM}"]
    lines += [f"require go.etcd.io/etcd/server/v3 v{_ETCD}"]
    lines += [f"replace k8s.io/{part} => k8s.io/{part} v0.{minor}" for part in _STAGING]
    return "\n".join(lines) + "\n"


def _link_flags() -> str:
    """Return the linker's flags: without debug information, and with the version that the server reports."""
    return f"-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"


def _run(command: list[str], place: Path) -> None:
    """Run Go; raise `GlassflowError` with its last line where it fails."""
    done = subprocess.run(
        command, cwd=place, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output from Go"])[-1]
        raise GlassflowError(
            f"{' '.join(command[:2])} failed ({reason}); let this machine reach a Go module proxy, or set GOPROXY"
        )


if __name__ == "__main__":
    build(print)
