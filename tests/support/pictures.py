"""Pictures of pages, by Chromium."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

# Dagster loads its graph in many requests and draws it after the last response.
_DRAWN_MS = 30_000
# Chromium refuses to run sandboxed as root, and sends telemetry unless told not to. The pages are of this machine.
_CHROMIUM = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--no-proxy-server",
)  # fmt: skip


def find_chromium() -> str | None:
    """Return the program's path; None where it is not installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def take_picture(url: str, size: tuple[int, int], file: Path) -> None:
    """Write a picture of a page. size: of the window, width and height in pixels."""
    chromium = find_chromium()
    assert chromium, "no Chromium on the PATH"
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as profile:
        window = f"--window-size={size[0]},{size[1]}"
        command = [chromium, *_CHROMIUM, f"--user-data-dir={profile}", window, f"--virtual-time-budget={_DRAWN_MS}"]
        subprocess.run([*command, f"--screenshot={file}", url], check=True, capture_output=True)
