"""Each page as it is without servers: axe-core finds nothing, in light and dark, and on a narrow screen."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, pipeline_folder, write_heartbeat
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.server.ui.application import pages
from glassflow_dagster.server.wizard.steps import STEPS
from tests.server.api.conftest import Api, deduplicating
from tests.server.ui.chromium import Browser, chromium_page, playwright
from tests.server.ui.conftest import Site
from tests.server.wizard.drafts import answered

PIPELINE_PAGES = ("", "/ledger", "/dead-letters", "/checks", "/definition", "/definition/edit")


pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium_page(tmp_path) as opened:
        yield opened


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
        assert browser.page.url.endswith(f"/orders-clean{path}")
        browser.examine()


@pytest.mark.usefixtures("no_drivers")
def test_a_page_with_a_token_is_used_after_its_login(serve: Callable[..., Api], tmp_path: Path) -> None:
    api = serve("t0ken", extend=pages())
    with chromium_page(tmp_path) as stranger, pytest.raises(playwright.Error, match="INVALID_AUTH_CREDENTIALS"):
        stranger.page.goto(f"{api.url}/ui/")
    with chromium_page(tmp_path, token="t0ken") as browser:
        browser.page.goto(api.url)
        browser.click("button", "Make the first pipeline")
        browser.see("Where the events come from.")
        browser.examine()


def test_only_the_settings_of_the_chosen_login_are_shown(site: Site, browser: Browser) -> None:
    page = browser.page
    page.goto(f"{site.url}/ui/")
    browser.click("button", "Make the first pipeline")
    page.get_by_text("More settings").click()
    shown, hidden = playwright.expect(page.locator("#protocol")), playwright.expect(page.locator("#mechanism"))
    shown.to_be_visible()
    hidden.to_be_hidden()
    page.locator("#protocol").select_option("SASL_SSL")
    for mechanism, field in (("OAUTHBEARER", "token_url"), ("AWS_MSK_IAM", "region"), ("GSSAPI", "kerberos_keytab")):
        page.locator("#mechanism").select_option(mechanism)
        playwright.expect(page.locator(f"#{field}")).to_be_visible()
        playwright.expect(page.locator("#password")).to_be_hidden()
        browser.examine()
