"""Each page as it is without servers: axe-core finds nothing, in light and dark, and on a narrow screen."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassflow_dagster.driver.heartbeat import DriverState, Heartbeat, pipeline_folder, write_heartbeat
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.wizard.draft import Draft, JoinChoice, Target
from glassflow_dagster.wizard.steps import STEPS
from tests.api.conftest import Api, deduplicating
from tests.ui.chromium import Browser, chromium_page
from tests.ui.conftest import Site
from tests.wizard.drafts import joined

PIPELINE_PAGES = ("", "/ledger", "/dead-letters", "/checks", "/definition", "/definition/edit")


pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium_page(tmp_path) as opened:
        yield opened


def answered() -> Draft:
    """Return a draft of which each step is answered; its servers do not answer."""
    draft = joined(join=JoinChoice("user_id", "user_id"), target=Target("analytics", "orders"))
    draft.clickhouse = {"host": "127.0.0.1", "port": "9000", "http_port": "1", "database": "default",
                        "username": "default", "password": "", "secure": False}  # fmt: skip
    draft.done = {step.name for step in STEPS} - {"review"}
    return draft


def running(site: Api) -> None:
    """Write the heartbeat of a driver that runs, and is this process."""
    pid = 1
    beat = Heartbeat(
        pipeline_id="orders-clean", state=DriverState.RUNNING, pid=pid, process_started=start_of(pid) or "",
        updated_at=time.time(), fingerprint="f", batch_id=7, batch_time=time.time(), lag=12, lags={"orders": 12},
        input_rows_per_second=1234.5, processed_rows_per_second=1200, state_keys=10_000, state_bytes=5_000_000,
    )  # fmt: skip
    for age in (0.1, 0.2, 0.4, 3.0):
        beat.measures.event_to_row.observe(age)
    folder = pipeline_folder(site.state, "orders-clean")
    folder.mkdir(parents=True)
    write_heartbeat(folder, beat)


def test_each_step_can_be_used_by_everyone(site: Site, browser: Browser) -> None:
    browser.page.goto(f"{site.url}/ui/")
    browser.examine()
    browser.click("button", "Make the first pipeline")
    draft_id = browser.page.url.split("/")[-2]
    site.pages.drafts.get(draft_id).draft = answered()
    for step in STEPS:
        browser.page.goto(f"{site.url}/ui/new/{draft_id}/{step.name}")
        assert browser.page.url.endswith(f"/{step.name}")
        browser.examine()


def test_each_page_of_a_pipeline_can_be_used_by_everyone(site: Site, browser: Browser) -> None:
    site.write(deduplicating())
    running(site)
    for path in PIPELINE_PAGES:
        browser.page.goto(f"{site.url}/ui/pipelines/orders-clean{path}")
        browser.examine()
