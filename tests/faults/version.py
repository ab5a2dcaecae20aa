"""The name of the code that the fault matrix tries: what a driver runs, not the whole package."""

import hashlib
import subprocess
from pathlib import Path

import grimp

_PACKAGE = "glassflow_dagster"
_ROOT = Path(__file__).parents[2]
# Packages that a driver runs by themselves, and in its JVM or in Spark's Python processes, by name only.
_OF_A_DRIVER = ("driver", "stream")
# Folders with files that are not Python: Scala sources, tables of functions, lists of jars.
_WITH_OTHER_FILES = ("definition", "runtime", "stream")
_DIGITS = 10


def code_version() -> str:
    """Return a sum over all files of the package that a driver runs, as committed, and whether one was changed since.

    Commits of tests, documents, Dagster's assets, the page or the commands do not change it.
    """
    files = driver_files()
    status = _git("status", "--porcelain", "--untracked-files=all", "--no-renames", "--", _PACKAGE)
    changed = {line[3:] for line in status.splitlines()}
    committed = [line for line in _git("ls-tree", "-r", "HEAD", "--", _PACKAGE).splitlines() if _name(line) in files]
    version = hashlib.sha256("\n".join(committed).encode()).hexdigest()[:_DIGITS]
    return f"{version}, changed" if changed & files else version


def driver_files() -> set[str]:
    """Return the files of the package that a driver runs, directly or by imports, relative to the project."""
    graph = grimp.build_graph(_PACKAGE, cache_dir=None)
    modules: set[str] = set()
    for name in _OF_A_DRIVER:
        for module in {f"{_PACKAGE}.{name}", *graph.find_descendants(f"{_PACKAGE}.{name}")}:
            modules |= {module, *graph.find_upstream_modules(module)}
    # Python runs the packages around a module, too.
    modules |= {module.rsplit(".", depth)[0] for module in modules for depth in range(1, module.count(".") + 1)}
    others = (file for name in _WITH_OTHER_FILES for file in (_ROOT / _PACKAGE / name).rglob("*") if file.is_file())
    return {_file_of(module) for module in modules} | {
        str(file.relative_to(_ROOT)) for file in others if file.suffix not in {".py", ".pyc"}
    }


def _file_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if (_ROOT / path).is_dir() else f"{path}.py"


def _name(line: str) -> str:
    """Return the file in a line of `git ls-tree`."""
    return line.partition("\t")[2]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, check=True, capture_output=True, text=True).stdout
