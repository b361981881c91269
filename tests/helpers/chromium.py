# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, which `make chromium` installs, driven by Playwright."""

import contextlib
import os
import shutil

from playwright.sync_api import sync_playwright


@contextlib.contextmanager
def launched():
    """A browser. As root it has no sandbox, which Chromium refuses to make there."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield browser
        browser.close()
