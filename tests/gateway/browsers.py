"""A real browser: Debian's chromium, or the one that RUNNEL_CHROMIUM names. Its tabs keep what goes wrong."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
SIZES = {"desk": (1280, 820), "phone": (360, 740)}
TIMEOUT_MS = 15_000


def chromium_path() -> str | None:
    """The program; None if there is none."""
    given = os.environ.get("RUNNEL_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str | None:
    """Why there is no browser; None if there is one."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "no Playwright: pip install playwright axe-playwright-python"
    return "no chromium: install it, or set RUNNEL_CHROMIUM" if chromium_path() is None else None


MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    # Chromium and its pipes are closed by Playwright's own process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        yield found
        found.close()


@contextmanager
def tab_of(browser: Any, home: str) -> Iterator[Any]:
    """A tab with a list `faults`: errors, dialogs of the browser, and requests to other hosts."""
    context = browser.new_context(viewport={"width": 1280, "height": 820}, color_scheme="light")
    tab = context.new_page()
    tab.set_default_timeout(TIMEOUT_MS)
    faults: list[str] = []
    tab.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))

    def requested(request: Any) -> None:
        if not request.url.startswith(home):
            faults.append(f"request to {request.url}")

    tab.on("request", requested)
    tab.faults = faults
    yield tab
    context.close()


def seen_as(page: Any, size: str, theme: str) -> None:
    """On a desk or a phone, by day or by night."""
    page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)


def violations(page: Any) -> list[str]:
    """What axe-core objects to."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found]
