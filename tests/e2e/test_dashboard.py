# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a browser, as the cluster's own image serves it: by a port-forward."""

import shutil
import urllib.parse

import pytest
from chromium import launched
from playwright.sync_api import expect
from rest_clients import forwarded, viewer

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="no chromium: make chromium installs it"
)


def test_a_tenant_signs_in_and_follows_a_job_to_its_gpus(kube, system, judged):
    with viewer(kube) as token, forwarded(system) as (calls, _), launched() as browser:
        page = browser.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(20_000)
        page.goto(urllib.parse.urljoin(calls, "/"))
        page.get_by_label("Token of the Kubernetes API server").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Live", exact=True).wait_for()
        expect(page.locator(".figures-note")).to_contain_text("simulated")
        page.get_by_role("link", name="Jobs").click()
        page.get_by_text("There are no jobs that you may see").wait_for()
        kube.submit(judged.job("drawn", gpus=1, workers=2, seconds=20))
        page.get_by_role("link", name=f"{kube.namespace}/drawn").click()
        expect(page.locator(".view-head")).to_contain_text("Running", timeout=40_000)
        page.get_by_text("GPU", exact=False).first.wait_for()
        assert page.locator(".placed-taken").count() == 2
        expect(page.locator(".view-head")).to_contain_text("Succeeded", timeout=60_000)
        page.get_by_text("Attempt 1", exact=True).wait_for()
