# SPDX-License-Identifier: Apache-2.0
"""JupyterLab on a share of a GPU, in a browser: a cell computes where its pod was placed."""

import json
import shutil

import httpx
import pytest
import yaml
from chromium import launched
from harness import DEVICES_ANNOTATION, ROOT
from playwright.sync_api import expect
from rest_clients import port_forward

MANIFEST = yaml.safe_load((ROOT / "examples/notebook.yaml").read_text())
TOKEN = "the-token-of-a-test"
START_SECONDS = 120
"""From nothing to the page: a first start reads Jupyter's files from a cold disk."""

CELL = """import os, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
a = torch.arange(6.0, device=device).reshape(2, 3)
print("product", (a @ a.T).tolist(), "on", os.environ["GPUPACK_DEVICES"])
"""


@pytest.fixture
def notebook(kube):
    """Its address, once it is ready."""
    kube.insist("create", "secret", "generic", "notebook", f"--from-literal=token={TOKEN}")
    kube.submit(MANIFEST)
    seconds = f"--timeout={START_SECONDS}s"
    kube.insist("rollout", "status", "deployment/notebook", seconds)
    with port_forward(kube, "deployment/notebook", 8888) as port:
        yield f"http://localhost:{port}"


def test_a_cell_computes_on_the_gpu_that_the_pod_has_a_share_of(kube, notebook):
    if shutil.which("chromium") is None:
        pytest.skip("no chromium: make chromium installs it")
    (pod,) = kube.pods()
    (held,) = json.loads(pod["metadata"]["annotations"][DEVICES_ANNOTATION])
    assert (held["percent"], held["memoryMiB"]) == (30, 20480)
    with launched() as browser:
        page = browser.new_context().new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(START_SECONDS * 1000)
        page.goto(f"{notebook}/lab?token={TOKEN}")
        page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        cell = page.locator(".jp-Notebook .cm-content").first
        cell.fill(CELL)
        expect(cell).to_contain_text("product")
        cell.press("Shift+Enter")
        printed = page.locator(".jp-OutputArea-output").first
        expect(printed).to_contain_text(
            f"product [[5.0, 14.0], [14.0, 50.0]] on {held['uuid']}", timeout=START_SECONDS * 1000
        )
    assert [url for url in asked if not url.startswith((notebook, "data:", "blob:"))] == []


def test_a_notebook_refuses_callers_without_its_token(notebook):
    assert httpx.get(f"{notebook}/api/contents").status_code == 403
    wrong = {"Authorization": "token another"}
    assert httpx.get(f"{notebook}/api/contents", headers=wrong).status_code == 403
    right = {"Authorization": f"token {TOKEN}"}
    assert httpx.get(f"{notebook}/api/contents", headers=right).status_code == 200
