# SPDX-License-Identifier: Apache-2.0
"""What happens while the page is open: changes, a server that dies, a token that ends."""

import re
import uuid

import pytest
from playwright.sync_api import expect
from server import Server
from world import ADMIN, TENANT

LABEL = "Token of the Kubernetes API server"


@pytest.fixture
def own_server():
    made = Server()
    yield made
    made.kill()


def test_a_change_in_the_cluster_is_seen_within_seconds(opened, server):
    page = opened("nodes/train-10")
    page.get_by_text("0% allocated").wait_for()
    server.change("pods", name="new", node="train-10", gpus="0,1,2,3")
    expect(page.get_by_text("50% allocated")).to_be_visible(timeout=4000)


def test_a_job_that_is_deleted_while_it_is_shown_is_not_shown_as_running(opened, own_server):
    page = opened("jobs/research/probe", at=own_server)
    expect(page.locator(".view-head .phase")).to_have_text(re.compile("Running"))
    own_server.change("remove_job", namespace="research", name="probe")
    expect(page.get_by_text("This job does not exist")).to_be_visible()
    expect(page.get_by_text("Running")).to_have_count(0)


def test_a_lost_server_is_shown_and_its_changes_appear_after_it_returns(opened, own_server):
    page = opened("nodes/train-10", at=own_server)
    page.get_by_text("Live", exact=True).wait_for()
    own_server.change("pods", name="gone", node="train-10", gpus="0,1,2,3")
    page.get_by_text("50% allocated").wait_for()
    own_server.kill()
    expect(page.locator(".link")).to_have_text(re.compile(r"old · again in \d+s"))
    expect(page.get_by_text("50% allocated")).to_be_visible()
    own_server.start_again()
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=20_000)
    expect(page.get_by_text("0% allocated", exact=False).first).to_be_visible()


def test_a_token_that_ends_brings_the_login_back_over_the_same_view(opened, own_server):
    short, other = f"short-{uuid.uuid4()}", f"other-{uuid.uuid4()}"
    own_server.change("grant", token=short, user="admin")
    page = opened("jobs/vision/sweep", at=own_server, token=short)
    page.get_by_text("XID 79").wait_for()
    own_server.change("expire", token=short)
    page.get_by_role("heading", name="Sign in again").wait_for(timeout=30_000)
    expect(page.get_by_text("the token is not valid")).to_be_visible()
    assert page.get_by_text("XID 79").is_visible()
    own_server.change("grant", token=other, user="admin")
    page.get_by_label(LABEL).fill(f"Bearer {other}\n")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Sign in again")).to_be_hidden()
    page.get_by_text("Live", exact=True).wait_for()
    assert page.url.endswith("#/jobs/vision/sweep")
    assert page.get_by_text("XID 79").is_visible()


def test_a_token_stays_in_this_tab_and_out_of_every_address(opened, server):
    page = opened(token="")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label(LABEL).fill(f"  {TENANT}\n")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Live", exact=True).wait_for()
    assert asked
    assert not [url for url in [*asked, page.url] if TENANT in url]
    stored = page.evaluate("[document.cookie, JSON.stringify(localStorage)]")
    assert not [each for each in stored if TENANT in each]
    page.reload()
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label(LABEL).wait_for()
    assert page.evaluate("sessionStorage.getItem('gpupack.token')") is None
    assert page.get_by_text("train-01").count() == 0


def test_data_of_one_user_is_gone_when_another_signs_in(opened):
    page = opened("jobs")
    page.get_by_text("speech/").first.wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label(LABEL).fill(TENANT)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("pretrain-large").wait_for()
    assert page.get_by_text("speech/").count() == 0


def test_an_invalid_token_is_not_sent(opened):
    page = opened(token="")
    asked = []
    page.get_by_label(LABEL).wait_for()
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label(LABEL).fill("kein Tökén")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This is not a token").wait_for()
    assert asked == []


def test_a_wrong_token_is_refused_with_the_server_s_words(opened):
    page = opened(token="")
    page.get_by_label(LABEL).fill(f"wrong-{uuid.uuid4()}")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("the token is not valid").wait_for()
    expect(page.get_by_role("heading", name="Sign in again")).to_have_count(0)
    page.get_by_label(LABEL).fill(TENANT)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Live", exact=True).wait_for()


def test_a_token_is_not_shown_while_it_is_typed(opened):
    field = opened(token="").get_by_label(LABEL)
    assert field.evaluate("each => getComputedStyle(each).webkitTextSecurity") == "disc"


def test_everything_is_reached_by_the_keyboard(opened):
    page = opened(token="")
    page.get_by_label(LABEL).wait_for()
    page.keyboard.type(ADMIN)
    page.keyboard.press("Enter")
    page.locator(".heat").wait_for()
    reach(page, "Map of all GPUs")
    page.keyboard.press("Home")
    expect(page.locator("#heat-readout")).to_contain_text("serve-1, GPU 0")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-readout")).to_contain_text("serve-1, GPU 1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-readout")).to_contain_text("serve-6, GPU 1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-readout")).to_contain_text("train-01, GPU")
    page.keyboard.press("Enter")
    expect(page.locator(".cluster-side h2")).to_have_text("train-01")
    reach(page, "Queue", back=True)
    page.keyboard.press("Enter")
    page.get_by_text("32 GPUs are missing").wait_for()
    reach(page, "Queue, rows")
    reach(page, "vision/pretrain-large")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="pretrain-large").wait_for()


def reach(page, name, *, back=False):
    """Press Tab until what is called so has the focus."""
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        found = page.evaluate(
            "document.activeElement.ariaLabel ?? document.activeElement.textContent"
        )
        if found == name:
            return
    raise AssertionError(f"Tab never comes to {name}")
