# SPDX-License-Identifier: Apache-2.0
"""The page of one machine's server, without a cluster."""

import pathlib
from types import SimpleNamespace

import pytest
from host_server import PREFIX, HostServer
from playwright.sync_api import expect

PAGE = pathlib.Path(__file__).parents[2] / "apiserver/dashboard/dist"


@pytest.fixture
def machine(tmp_path):
    made = HostServer(tmp_path, GPUPACK_PAGE_FOLDER=str(PAGE))
    yield made.start()
    made.stop()


def test_views_that_take_a_cluster_are_left_out_and_gpus_are_called_simulated(opened, machine):
    at = SimpleNamespace(page=machine.url.removesuffix(PREFIX))
    page = opened("nodes", token=machine.token, at=at)
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(views).to_have_text(["Cluster", "Nodes", "Packing"])
    expect(page.get_by_text("Every 10s")).to_be_visible()
    page.get_by_role(
        "link", name=machine.call("GET", "/nodes").json()["nodes"][0]["node_name"]
    ).click()
    expect(page.get_by_text("simulated").first).to_be_visible()
