"""From a running stack to a running, deduplicated, joined pipeline in headless Chromium, with the mouse alone.

Each page that it passes is examined by axe-core, in light and dark, and on a narrow screen. With the environment
variable `SCREENSHOTS` the pictures of docs/guides/ui.md are taken again, into that folder.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import clickhouse_connect
import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.cli.dev import fill_topics
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.local.demo.orders import orders
from glassflow_dagster.local.demo.produce import send
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up
from glassflow_dagster.server.ui.application import pages
from tests.server.api.conftest import Api
from tests.server.ui.chromium import Browser, chromium_page, playwright
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]
PIPELINE = "orders_with_user_events"
# The demo's events, and the repeated ones among them: a tenth of both topics.
EVENTS, DUPLICATES = 11_000 + 2_640, 1_000 + 240
SECONDS = 120_000  # milliseconds, for what starts a JVM


@dataclass(frozen=True)
class Servers:
    kafka: str
    clickhouse: str


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Start a stack of its own with the demo's topics, as `make dev` does."""
    kafka, clickhouse = free_port(), free_port()
    up(tmp_path / "stack", kafka, clickhouse, print)
    try:
        found = Servers(f"127.0.0.1:{kafka}", f"http://default:@127.0.0.1:{clickhouse}")
        monkeypatch.setenv("GLASSFLOW_KAFKA_BROKERS", found.kafka)
        monkeypatch.setenv("GLASSFLOW_CLICKHOUSE_URL", found.clickhouse)
        fill_topics(found.kafka)
        yield found
    finally:
        down(tmp_path / "stack", print)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium_page(tmp_path) as opened:
        yield opened


def test_a_pipeline_is_made_and_watched_with_the_mouse_alone(
    serve: Callable[..., Api], servers: Servers, browser: Browser, spark: SparkSession
) -> None:
    api = serve(extend=pages("http://127.0.0.1:3000"))
    # The previews' own session would leave this process a JVM whose folder is gone, which later tests would get.
    api.services.session.spark = spark
    page = browser.page
    page.goto(api.url)
    browser.see("No pipeline yet")
    browser.examine()
    browser.click("button", "Make the first pipeline")
    make(browser)
    watch(browser, api, servers)
    stop_and_edit(browser, api)
    assert len(browser.examined) >= 20


def make(browser: Browser) -> None:
    """Answer the steps by clicks."""
    choose_events(browser)
    choose_table(browser)


def choose_events(browser: Browser) -> None:
    """Answer the steps from Kafka to the join."""
    page = browser.page
    browser.examine()
    browser.click("button", "Test the connection")
    browser.see("Connected: 2 topics.")
    browser.picture("ui_kafka")
    browser.click("button", "Next")

    page.locator("input[name=topic][value=orders]").check()
    browser.see('"order_id"')
    browser.examine()
    browser.picture("ui_topic")
    browser.click("button", "Next")

    browser.see("repeats")
    assert page.locator("input[name=key][value=order_id]").is_checked()
    browser.examine()
    browser.picture("ui_key")
    browser.click("button", "Next")

    browser.see("of the sample; duplicates are those among these events", SECONDS)
    browser.examine()
    # What one types wrongly is marked below the mistake.
    page.locator("#filter").fill("amont > 10")
    browser.see("^^^^^")
    page.locator("#filter").fill("amount > 10")
    browser.see("filtered")
    browser.picture("ui_filter")
    page.locator("#filter").fill("")
    playwright.expect(page.locator("#preview")).not_to_contain_text("filtered", timeout=SECONDS)
    browser.click("button", "Next")

    page.locator("input[name=topic][value=user_events]").check()
    browser.see('"email"')
    browser.examine()
    browser.click("button", "Next")

    browser.see("events of orders match one of")
    assert page.locator("#left_key").input_value() == page.locator("#right_key").input_value() == "user_id"
    browser.examine()
    browser.picture("ui_join")
    browser.click("button", "Next")


def choose_table(browser: Browser) -> None:
    """Answer the steps from ClickHouse to the review, and deploy."""
    browser.click("button", "Test the connection")
    browser.see("Connected: ClickHouse")
    browser.examine()
    browser.click("button", "Next")

    browser.see("analytics is a new database")
    browser.examine()
    browser.click("button", "Next")

    browser.see("analytics.orders is new")
    browser.examine()
    browser.picture("ui_columns")
    browser.click("button", "Next")

    browser.examine()
    browser.click("button", "Next")

    browser.see("Valid.")
    browser.examine()
    browser.picture("ui_review")
    browser.click("button", "Deploy")


def watch(browser: Browser, api: Api, servers: Servers) -> None:
    """Wait until the pipeline has read all, and look at its pages."""
    page = browser.page
    playwright.expect(page.get_by_role("heading", name=PIPELINE)).to_be_visible()
    state = page.locator(".statusbar .state")
    playwright.expect(state).to_have_text("Running", timeout=SECONDS)
    port = int(servers.clickhouse.rpartition(":")[2])
    client = clickhouse_connect.get_client(host="127.0.0.1", port=port)

    def rows() -> int:
        return int(client.query("SELECT count() FROM analytics.orders").first_row[0])

    stream = api.services.catalog.stream
    wait_until(
        lambda: (beat := stream(PIPELINE).heartbeat) and beat.lag == 0 and beat.totals.read == EVENTS,
        "all events are read", evidence=lambda: stream(PIPELINE),
    )  # fmt: skip
    # Orders of guests are written at once; those of unknown users wait an hour for their user.
    unique = client.query("SELECT uniqExact(order_id), countIf(name != '') FROM analytics.orders").first_row
    assert unique[0] == rows() <= len(orders())
    assert unique[1] > 9_000
    playwright.expect(page.locator("#live")).to_contain_text(f"{DUPLICATES:,}", timeout=30_000)
    browser.see("Records per second")
    # Two slices of the ledger have gone by.
    page.locator("#plots figure:first-child .line").first.wait_for(state="attached", timeout=60_000)
    browser.examine()
    browser.picture("ui_pipeline", whole=True)
    browser.click("link", "Batches")
    browser.see("orders[0]")
    browser.examine()
    browser.picture("ui_batches")
    browser.click("link", "Checks")
    browser.see("Nothing is missing, and nothing is there twice.", SECONDS)
    browser.examine()
    browser.click("link", "Dead letters")
    browser.see("No dead letter waits.")
    browser.examine()
    replay_a_dead_letter(browser, servers)
    page.locator(".brand").click()
    browser.see("Join & Deduplication")
    browser.examine()


def replay_a_dead_letter(browser: Browser, servers: Servers) -> None:
    """Send a record that is no order, find it, and replay it."""
    send(servers.kafka, "orders", [json.dumps({"order_id": "x", "amount": "many"}).encode()], 7, lambda _: None)
    page = browser.page

    def is_there() -> bool:
        page.reload()
        return page.locator("input[name=id]").count() == 1

    wait_until(is_there, "the dead letter is shown", evidence=lambda: page.locator("main").inner_text())
    browser.examine()
    browser.picture("ui_dead_letters")
    page.locator("input[name=id]").check()
    browser.click("button", "Replay the chosen ones")
    browser.see("They are being sent to the pipeline again.")


def stop_and_edit(browser: Browser, api: Api) -> None:
    """Stop the pipeline, refuse an edit that its checkpoint cannot take, and save one that it can."""
    page = browser.page
    browser.click("link", PIPELINE)
    browser.click("button", "Stop after the batch")
    playwright.expect(page.locator(".statusbar .state")).to_have_text("Stopped", timeout=SECONDS)
    browser.click("link", "Edit", exact=True)
    text = page.locator("#text").input_value()
    page.locator("#text").fill(text.replace("table: orders\n", "table: other_orders\n"))
    browser.click("button", "Review the changes")
    browser.see("Refused.")
    browser.examine()
    assert page.locator("#save").count() == 0
    page.locator("#text").fill(text.replace("max_delay_time: 1s", "max_delay_time: 2s"))
    browser.click("button", "Review the changes")
    browser.see("Allowed.")
    browser.examine()
    browser.picture("ui_edit")
    browser.click("button", "Save and resume")
    playwright.expect(page.locator(".statusbar .state")).to_have_text("Running", timeout=SECONDS)
    browser.click("link", "Definition", exact=True)
    browser.see("max_delay_time: 2s")
    browser.examine()
    stop_driver(api.state, PIPELINE)
