# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "tests/browser")]

from chromium import launched  # noqa: E402
from server import Server  # noqa: E402
from world import ADMIN  # noqa: E402

WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}

SIGNED_IN = """if (sessionStorage.getItem("began") === null) {
    sessionStorage.setItem("began", "");
    sessionStorage.setItem("gpupack.token", token);
}"""
"""Sets the token once: a user that signs out stays signed out."""


@pytest.fixture(scope="session")
def server():
    """With the small world; tests change of it what no other looks at."""
    made = Server()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, server):
    """Open a view as a user; no page may call another server or fail."""
    contexts, wrong = [], []

    def show(view="", *, token=ADMIN, at=server, size=WIDE, scheme="light", **more):
        context = chromium.new_context(
            viewport=size, color_scheme=scheme, ignore_https_errors=True, **more
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: _is_ours(asked.url, at.page) or wrong.append(asked.url))
        if token:
            page.add_init_script(f"token = '{token}'; {SIGNED_IN}")
        page.goto(f"{at.page}/#/{view}")
        return page

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


def _is_ours(url, page):
    return url.startswith((page + "/", "data:", "blob:"))
