"""Check requirements.lock against the known advisories: `make audit`.

Fail for an advisory that `.ci/advisories.toml` does not accept with a reason. When the advisory database cannot be
reached, print a warning and pass: otherwise nobody behind a proxy could make a change.
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
# The database that collects the advisories of PyPI, GitHub and others.
OSV = "https://api.osv.dev/v1/query"
REACH_TIMEOUT = 10  # seconds; a restricted network refuses the connection or drops the packets
# How pip-audit reports a network error during the audit, besides a traceback.
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Max retries", "NameResolutionError")


def main() -> int:
    """Return exit code 0 when nothing was found or the database is unreachable, 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", type=Path, default=PROJECT / "requirements.lock")
    parser.add_argument("--advisories", type=Path, default=PROJECT / ".ci" / "advisories.toml")
    parser.add_argument("--osv-url", default=OSV, help="the database to ask")
    arguments = parser.parse_args()
    problem = _why_unreachable(arguments.osv_url)
    if problem:
        return _not_audited(arguments.osv_url, problem)
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--requirement", str(arguments.lock), "--disable-pip", "--no-deps",
         "--vulnerability-service", "osv", "--osv-url", arguments.osv_url, "--format", "json", "--aliases", "on",
         "--progress-spinner", "off"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout.strip():
        if any(sign in done.stderr for sign in UNREACHABLE):
            return _not_audited(arguments.osv_url, done.stderr.strip().splitlines()[-1])
        sys.stderr.write(f"{done.stderr}audit: pip-audit ended without a report\n")
        return 1
    accepted = tomllib.loads(arguments.advisories.read_text(encoding="utf-8")).get("accepted", [])
    return judge(json.loads(done.stdout), {entry["id"]: entry["reason"] for entry in accepted})


def judge(report: dict[str, Any], accepted: dict[str, str]) -> int:
    """Print the findings of pip-audit's report; return 1 if an advisory is not accepted, else 0."""
    refused, seen = 0, set()
    for package in report["dependencies"]:
        if "skip_reason" in package:
            _say(f"NOT AUDITED: {package['name']}: {package['skip_reason']}")
        for advisory in package.get("vulns", []):
            names = {advisory["id"], *advisory["aliases"]}
            reasons = [reason for name, reason in accepted.items() if name in names]
            seen |= names
            refused += not reasons
            fixed = f"fixed in {', '.join(advisory['fix_versions'])}" if advisory["fix_versions"] else "not fixed yet"
            what = f"{package['name']} {package['version']}: {', '.join(sorted(names))} ({fixed})"
            _say(f"accepted: {what}: {reasons[0]}" if reasons else f"{what}; update it, or accept it with a reason")
    for name in accepted.keys() - seen:
        _say(f"{name} is accepted, but no longer reported; remove it from the list")
    if not refused:
        _say(f"audit: {len(report['dependencies'])} packages, no advisory that is not accepted")
    return 1 if refused else 0


def _why_unreachable(url: str) -> str | None:
    """Query the database for one package; return the error, or None when it answers."""
    question = json.dumps({"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "24.0"}).encode()
    request = urllib.request.Request(url, question, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=REACH_TIMEOUT) as answer:
            json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return None


def _not_audited(url: str, problem: str) -> int:
    """Print that the audit did not take place, with the reason, and return exit code 0."""
    line = "!" * 100
    _say(f"{line}\nNOT AUDITED: the advisories at {url} cannot be reached ({problem}).")
    _say(f"Nothing is known about the packages of requirements.lock; run make audit where it can be.\n{line}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
