"""An earlier commit of this project, set up in the cache in an environment of its own, to be measured with this one."""

import sys
from functools import partial
from pathlib import Path

from benchmarks.console import say
from benchmarks.peers.environment import set_up_once
from benchmarks.processes import call
from benchmarks.results import git
from glassflow_dagster.runtime.cache import cache_folder

_PROJECT = Path(__file__).parents[1]
# These would lead the earlier commit's Python to the packages of the checkout.
_OWN_PACKAGES = ("env", "--unset=PYTHONPATH", "--unset=VIRTUAL_ENV")


def program_of(commit: str) -> tuple[str, ...]:
    """Return the beginning of a command that runs a commit's `glassflow-dagster`, in any folder.

    The first call checks the commit out and sets it up (some minutes). Raises SystemExit where that is not possible.
    """
    folder = cache_folder() / "commits" / commit
    set_up_once(folder, partial(_set_up, commit, folder))
    # Spark starts its Python workers with -m, which looks for modules in the current folder first.
    return (*_OWN_PACKAGES, "PYTHONSAFEPATH=1", str(folder / ".venv" / "bin" / "glassflow-dagster"))


def _set_up(commit: str, folder: Path) -> None:
    say(f"setting up commit {commit}, whose speed is the measure (once)")
    if not git("-C", str(_PROJECT), "rev-parse", "--verify", f"{commit}^{{commit}}"):
        raise SystemExit(
            f"{_PROJECT} has no commit {commit}, whose speed is the measure; fetch the whole history, or make this "
            "commit the measure: python -m benchmarks.quick --keep"
        )
    if not folder.exists():
        call("git", "clone", "--quiet", "--no-checkout", str(_PROJECT), str(folder))
    call("git", "-C", str(folder), "checkout", "--quiet", "--detach", commit)
    call(*_OWN_PACKAGES, "make", "--silent", "-C", str(folder), f"PYTHON={sys.executable}", "setup")
