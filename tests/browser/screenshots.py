# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of docs/dashboard.md: the page on the REST API with made-up clusters.

make screenshots
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "tests/browser")]

from chromium import launched  # noqa: E402
from server import Server  # noqa: E402
from world import ADMIN  # noqa: E402

DOCS = ROOT / "docs"
WIDE, PHONE = {"width": 1200, "height": 760}, {"width": 360, "height": 740}


def main() -> None:
    """Make them all."""
    with launched() as browser:
        with running() as small:
            with opened(browser, small, "", viewport=WIDE) as page:
                page.locator(".heat").click(position={"x": 250, "y": 160})
                shot(page, "cluster")
            with opened(browser, small, "jobs/vision/sweep", viewport=WIDE) as page:
                page.get_by_text("XID 79").wait_for()
                shot(page, "job")
            with opened(browser, small, "", viewport=PHONE, has_touch=True) as page:
                page.get_by_label("Held by").check()
                page.locator(".legend").get_by_text("vision").wait_for()
                shot(page, "phone")
        with (
            running("--world", "large") as large,
            opened(browser, large, "", viewport=WIDE, color_scheme="dark") as page,
        ):
            page.get_by_text("of 40,000").wait_for()
            page.locator(".heat").click(position={"x": 300, "y": 200})
            shot(page, "large")


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Server]:
    """The API with a made-up cluster."""
    server = Server(*arguments)
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def opened(browser: Browser, server: Server, view: str, **look: Any) -> Iterator[Page]:
    """A view, once it is live."""
    context = browser.new_context(ignore_https_errors=True, **look)
    page = context.new_page()
    page.add_init_script(f"sessionStorage.setItem('gpupack.token', '{ADMIN}')")
    page.goto(f"{server.page}/#/{view}")
    page.get_by_text("Live", exact=True).wait_for()
    yield page
    context.close()


def shot(page: Page, name: str) -> None:
    """What is seen, as a file."""
    page.wait_for_timeout(1500)
    page.screenshot(path=DOCS / f"dashboard-{name}.png")


if __name__ == "__main__":
    main()
