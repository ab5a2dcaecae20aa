"""Holds requirements.lock against the known advisories: `make audit`.

Fails for an advisory that `.ci/advisories.toml` does not accept, with a reason. Where the database of advisories cannot
be reached, nothing is known: that is said loudly and is no failure, or no change could be made behind a proxy.
"""

import argparse
import json
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
# The database that PyPI's own advisories, GitHub's and others go into.
OSV = "https://api.osv.dev/v1/query"
REACH_TIMEOUT = 10  # seconds; a network without it refuses, or swallows what is sent
# How pip-audit tells a network that fails on the way, beside a traceback.
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Max retries", "NameResolutionError")


def main() -> int:
    """Audit the packages of the lock file with pip-audit; return the exit code.

    0: no advisory that is not accepted, or the database cannot be reached. 1: such an advisory, or no report.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", type=Path, default=PROJECT / "requirements.lock")
    parser.add_argument("--advisories", type=Path, default=PROJECT / ".ci" / "advisories.toml")
    parser.add_argument("--osv-url", default=OSV, help="the database to ask")
    options = parser.parse_args()
    problem = _why_unreachable(options.osv_url)
    if problem:
        return _not_audited(options.osv_url, problem)
    completed = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--requirement", str(options.lock), "--disable-pip", "--no-deps",
         "--vulnerability-service", "osv", "--osv-url", options.osv_url, "--format", "json", "--aliases", "on",
         "--progress-spinner", "off"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not completed.stdout.strip():
        if any(sign in completed.stderr for sign in UNREACHABLE):
            return _not_audited(options.osv_url, completed.stderr.strip().splitlines()[-1])
        sys.stderr.write(f"{completed.stderr}audit: pip-audit ended without a report\n")
        return 1
    accepted_advisories = tomllib.loads(options.advisories.read_text(encoding="utf-8")).get("accepted", [])
    return judge(json.loads(completed.stdout), {entry["id"]: entry["reason"] for entry in accepted_advisories})


def judge(report: dict[str, Any], accepted: dict[str, str]) -> int:
    """Print each advisory in pip-audit's report; return 1 when one is not accepted, else 0.

    accepted: id of an advisory -> the reason why it is accepted. One that is no longer reported is printed, too.
    """
    not_accepted, reported = 0, set()
    for package in report["dependencies"]:
        if "skip_reason" in package:
            _say(f"NOT AUDITED: {package['name']}: {package['skip_reason']}")
        for advisory in package.get("vulns", []):
            names = {advisory["id"], *advisory["aliases"]}
            reasons = [reason for name, reason in accepted.items() if name in names]
            reported |= names
            not_accepted += not reasons
            fix = f"fixed in {', '.join(advisory['fix_versions'])}" if advisory["fix_versions"] else "not fixed yet"
            description = f"{package['name']} {package['version']}: {', '.join(sorted(names))} ({fix})"
            _say(
                f"accepted: {description}: {reasons[0]}"
                if reasons
                else f"{description}; update it, or accept it with a reason"
            )
    for name in accepted.keys() - reported:
        _say(f"{name} is accepted, but no longer reported; remove it from the list")
    if not not_accepted:
        _say(f"audit: {len(report['dependencies'])} packages, no advisory that is not accepted")
    return 1 if not_accepted else 0


def _why_unreachable(url: str) -> str | None:
    """Ask the database for one package; return why it does not answer, None when it does."""
    query = json.dumps({"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "24.0"}).encode()
    request = urllib.request.Request(url, query, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=REACH_TIMEOUT) as answer:
            json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return None


def _not_audited(url: str, problem: str) -> int:
    """Print a warning that the database at `url` cannot be reached, and why; return exit code 0."""
    line = "!" * 100
    _say(f"{line}\nNOT AUDITED: the advisories at {url} cannot be reached ({problem}).")
    _say(f"Nothing is known about the packages of requirements.lock; run make audit where it can be.\n{line}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
