"""The alert rules: promtool accepts and tests them, and they agree with the metrics and the pages."""

import re
from typing import Any

import pytest
import yaml

from glassflow_dagster.runtime.metrics.exposition import METRICS
from tests.monitoring.alert_rules import ALERTS, DEPLOY, RULE_TESTS, rules
from tests.monitoring.metric_names import metrics_in
from tests.monitoring.prometheus import promtool

PROJECT = DEPLOY.parent
PAGE = PROJECT / "docs" / "guides" / "monitoring.md"


def rule_tests() -> list[dict[str, Any]]:
    """Return the tests of single alerts in alerts.test.yaml."""
    return [case for test in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    count = f"{len(rules())} rules found"
    assert count in promtool("check", "rules", ALERTS.name, folder=ALERTS.parent)
    assert count in promtool("check", "config", "prometheus.yaml", folder=ALERTS.parent)


def test_the_rule_tests_pass() -> None:
    assert "SUCCESS" in promtool("test", "rules", RULE_TESTS.name, folder=RULE_TESTS.parent)


def test_every_alert_is_fired_and_kept_silent_by_the_rule_tests() -> None:
    fired = {case["alertname"] for case in rule_tests() if case.get("exp_alerts")}
    silent = {case["alertname"] for case in rule_tests() if not case.get("exp_alerts")}
    assert fired == silent == set(rules())


@pytest.mark.parametrize("alert", rules())
def test_an_alert_says_what_happened_to_whom_and_where_to_read_on(alert: str) -> None:
    rule = rules()[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert "$labels.pipeline" in rule["annotations"]["summary"]
    assert "$labels.pipeline" in rule["annotations"]["description"]
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    assert PROJECT / page == PAGE
    assert section == alert.lower()


def test_the_runbook_has_a_section_for_each_alert() -> None:
    assert set(re.findall(r"^#+ (Glassflow\w+)$", PAGE.read_text(), re.MULTILINE)) == set(rules())


def test_rules_and_their_tests_use_only_metrics_that_exist() -> None:
    used = metrics_in(ALERTS.read_text()) | metrics_in(RULE_TESTS.read_text())
    assert used
    assert used <= {metric.name for metric in METRICS}
