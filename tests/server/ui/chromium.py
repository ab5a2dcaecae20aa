"""A page in headless Chromium, which axe-core examines."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The folder of the pictures of docs/guides/ui.md, if they are to be taken again.
SCREENSHOTS = os.environ.get("SCREENSHOTS")
# Rules of WCAG 2.2 up to level AA, and axe's best practices.
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WINDOW = {"width": 1200, "height": 860}
NARROW = {"width": 360, "height": 740}


@dataclass
class Browser:
    """A page in Chromium. examined: the addresses that axe-core has seen. found: what it, or a narrow window, found."""

    page: Any
    pictures: Path
    examined: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def click(self, role: str, name: str, **how: Any) -> None:
        self.page.get_by_role(role, name=name, **how).click()

    def see(self, text: str, within: float = 30_000) -> None:
        playwright.expect(self.page.locator("main")).to_contain_text(text, timeout=within)

    def picture(self, name: str, *, whole: bool = False) -> None:
        """Take a picture for the guide, of the window or of the whole page."""
        self.page.mouse.move(0, 0)
        self.page.screenshot(path=self.pictures / f"{name}.png", animations="disabled", full_page=whole)

    def examine(self) -> None:
        """Note what axe-core finds, in light and dark, and whether a narrow window needs scrolling aside."""
        for scheme in ("dark", "light"):
            self.page.emulate_media(color_scheme=scheme)
            self._note_violations(scheme)
        self.page.set_viewport_size(NARROW)
        self._note_violations("narrow")
        width = self.page.evaluate("document.documentElement.scrollWidth")
        if width > NARROW["width"]:
            self.found.append(f"{self.page.url}: {width} pixels wide")
        self.page.set_viewport_size(WINDOW)
        self.examined.append(self.page.url)

    def _note_violations(self, how: str) -> None:
        self.page.evaluate(_axe())
        found = self.page.evaluate("tags => axe.run({runOnly: tags})", AXE_TAGS)
        self.found += [
            f"{self.page.url}, {how}: {each['id']}: {each['help']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


@contextmanager
def chromium_page(folder: Path, token: str = "") -> Iterator[Browser]:
    """Open a page; at the end require that all could use it, no script has failed, and no other server was asked.

    folder: for pictures, unless those of the guide are taken. token: the password that the person types, if any.
    """
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH: install it, for instance by `apt-get install chromium`")
    with playwright.sync_playwright() as started:
        # It refuses to run sandboxed as root.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        login = {"username": "me", "password": token} if token else None
        page = chromium.new_context(viewport=WINDOW, http_credentials=login).new_page()
        complaints: list[str] = []

        def note_console(message: Any) -> None:
            # A refused answer is an error to the console, and is shown on the page; a request that a click on a link
            # has ended is one, too.
            expected = ("Failed to load resource", "htmx:sendAbort")
            if message.type == "error" and not message.text.startswith(expected):
                complaints.append(message.text)

        def note_request(request: Any) -> None:
            if not request.url.startswith(("http://127.0.0.1:", "data:")):
                complaints.append(request.url)

        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", note_console)
        page.on("request", note_request)
        try:
            browser = Browser(page, Path(SCREENSHOTS) if SCREENSHOTS else folder)
            yield browser
            assert not browser.found, "\n".join(browser.found)
            assert not complaints, f"errors of scripts, or requests to other servers: {complaints}"
        finally:
            chromium.close()
