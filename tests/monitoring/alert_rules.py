"""The shipped alert rules, and copies of them that fire within seconds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
RULE_TESTS = DEPLOY / "prometheus" / "alerts.test.yaml"


def rules() -> dict[str, dict[str, Any]]:
    """Return the rules of alerts.yaml by the name of the alert."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def shortened_rules(alert: str, durations: Mapping[str, str]) -> str:
    """Return all rules as text, those of one alert with shorter durations; the other alerts keep theirs.

    durations: parts of the alert's expression, and what replaces them. Its `for` becomes one second.
    """
    found = rules()
    rule = found[alert]
    for part, instead in durations.items():
        assert part in rule["expr"], f"{alert}: {part!r} is not in {rule['expr']!r}"
        rule["expr"] = rule["expr"].replace(part, instead)
    rule["for"] = "1s"
    return yaml.safe_dump({"groups": [{"name": "shortened", "rules": list(found.values())}]})
