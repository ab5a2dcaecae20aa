"""Programs that Go builds from their modules, once, into the cache: servers that no package of Python's has."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, cached


def go_program(name: str, module: str, version: str, report: Callable[[str], None]) -> Path:
    """Return a program: that on the PATH, that of the cache, or one that is built now; raise `GlassflowError`.

    module: of its package, such as example.org/a/cmd/a.
    """
    if installed := shutil.which(name):
        return Path(installed)

    def build(folder: Path) -> None:
        report(f"building {name} {version} (once, some minutes)")
        _build(f"{module}@{version}", f"{name} {version}", folder)

    waiting = partial(report, f"another process is building {name}; waiting for it")
    return cached(cache_folder() / name / version, name, build, waiting)


def _build(module: str, named: str, folder: Path) -> None:
    """Build a program into a folder; raise `GlassflowError` without Go, and where it cannot be built."""
    go = shutil.which("go")
    if go is None:
        raise GlassflowError(f"{named} is built by Go, which is not installed; install Go, or put {named} on the PATH")
    result = subprocess.run(
        [go, "install", module], env={**os.environ, "GOBIN": str(folder)}, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no output from Go"])[-1]
        raise GlassflowError(
            f"{named} could not be built ({reason}); let this machine reach a Go module proxy, or put "
            f"{named} on the PATH"
        )
