# SPDX-License-Identifier: Apache-2.0
"""The page below a prefix, behind a proxy that takes the header Authorization for itself."""

import pathlib
import subprocess
import sys
import types

import pytest
from playwright.sync_api import expect

PROXY = pathlib.Path(__file__).with_name("prefix_proxy.py")
PREFIXES = (
    "/gpupack",
    "/api/v1/namespaces/gpupack-system/services/https:gpupack-api:https/proxy",
)


@pytest.fixture(params=PREFIXES)
def below(request, server):
    """The same server below a prefix."""
    command = [sys.executable, "-B", PROXY, server.page, request.param]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()
    assert address, "the proxy did not start; what it said stands above"
    yield types.SimpleNamespace(page=f"{address}{request.param}")
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_page_works_below_any_prefix(opened, below):
    page = opened("jobs", at=below)
    expect(page.locator(".link")).to_have_text("Live")
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("vision/pretrain")
    page.get_by_role("link", name="vision/finetune").click()
    expect(page.get_by_role("heading", name="finetune")).to_be_visible()
    expect(page.get_by_text("train-03").first).to_be_visible()
    page.get_by_role("link", name="Queue").click()
    expect(page.get_by_role("table", name="Queue")).to_contain_text("pretrain-large")
