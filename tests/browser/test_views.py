# SPDX-License-Identifier: Apache-2.0
"""Each view for all users: in light and dark, wide and narrow, with all rights and none."""

import json
import pathlib

import pytest
from conftest import PHONE
from playwright.sync_api import expect
from views import SHOWN
from world import HOSTILE, STRANGER, TENANT

AXE = pathlib.Path(__file__).parents[2] / "apiserver/dashboard/node_modules/axe-core/axe.min.js"
SERIOUS = {"serious", "critical"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_shows_its_content_and_is_accessible(opened, scheme):
    page = opened(scheme=scheme)
    page.evaluate(AXE.read_text())
    found = {}
    for view, shown in SHOWN.items():
        go(page, view)
        page.get_by_text(shown).first.wait_for()
        settle(page)
        found[view] = barriers(page)
    assert found == {view: [] for view in SHOWN}


def test_the_login_is_accessible(opened):
    page = opened(token="")
    page.get_by_label("Token of the Kubernetes API server").wait_for()
    page.evaluate(AXE.read_text())
    assert barriers(page) == []


def test_the_color_switch_overrides_the_system_colors(opened):
    page = opened("nodes", scheme="light")
    page.get_by_label("Colours").select_option("dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    page.reload()
    page.get_by_text("train-01").first.wait_for()
    assert page.evaluate(background) == dark == "rgb(16, 21, 27)"


def test_on_a_phone_nothing_is_wider_than_the_screen(opened):
    page = opened(size=PHONE, has_touch=True)
    for view, shown in SHOWN.items():
        go(page, view)
        page.get_by_text(shown).first.wait_for()
        settle(page)
        assert page.evaluate(BEYOND) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], view


BEYOND = """() => [...document.querySelectorAll("main *")].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.right > innerWidth + 1 && box.width > 0 && !each.closest(".table-body");
}).map((each) => each.outerHTML.slice(0, 120))"""
"""Elements that reach beyond the screen, but for tables, which scroll by themselves."""


def test_a_finger_opens_a_node(opened):
    page = opened(size=PHONE, has_touch=True)
    page.locator(".heat canvas").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    box = page.locator(".heat").bounding_box()
    page.touchscreen.tap(box["x"] + 18, box["y"] + 34)
    assert page.locator(".cluster-side .gpus > li").first.is_visible()


def test_a_missing_right_is_named_and_the_other_views_work(opened):
    page = opened("nodes", token=STRANGER)
    page.get_by_text("Nodes: permission denied").wait_for()
    page.get_by_text("stranger may not get gpunodes/summary").wait_for()
    page.get_by_role("link", name="Jobs").click()
    page.get_by_text("There are no jobs that you may see").wait_for()
    page.get_by_role("link", name="Packing").click()
    page.get_by_text("Packing: permission denied").wait_for()


@pytest.mark.parametrize(
    ("view", "kind"), [("jobs", "GPUJobs"), ("queue", "GPUJobs"), ("quotas", "GPUQuotas")]
)
def test_a_token_that_may_list_in_no_namespace_gets_no_empty_list(opened, view, kind):
    page = opened(view, token=STRANGER)
    page.get_by_text(f"This token may not list {kind}").wait_for()
    page.get_by_text("gpupack-view").wait_for()
    assert page.get_by_text("kubectl apply").count() == 0


def test_a_job_that_waits_is_explained_by_one_message_alone(opened):
    page = opened("jobs/vision/pretrain-large")
    page.get_by_role("heading", name="Why it waits").wait_for()
    expect(page.locator("main > .message")).to_have_count(0)


def test_a_search_without_a_match_says_so(opened):
    page = opened()
    page.locator(".heat").wait_for()
    page.get_by_placeholder("Node, model, namespace").fill("train")
    expect(page.get_by_text("No match")).to_have_count(0)
    page.get_by_placeholder("Node, model, namespace").fill("nowhere")
    expect(page.get_by_text("No match")).to_be_visible()


@pytest.mark.parametrize("width", [360, 390, 540])
def test_on_a_phone_a_name_can_be_typed_into_the_search(opened, width):
    page = opened(size=PHONE | {"width": width}, has_touch=True)
    box = page.get_by_placeholder("Node, model, namespace").bounding_box()
    assert box["width"] > width / 2


def test_names_of_nodes_are_not_wrapped(opened):
    page = opened("jobs/vision/pretrain", size=PHONE)
    page.locator(".facts .name").first.wait_for()
    heights = page.evaluate("[...document.querySelectorAll('.name')].map(e => e.offsetHeight)")
    assert len(heights) >= 4
    assert set(heights) == {min(heights)}


def test_the_refusal_of_a_what_if_is_shown_once(opened):
    page = opened("what-if", token=TENANT)
    page.get_by_label("Without nodes").fill("nowhere")
    page.get_by_role("button", name="Ask").click()
    problem = page.locator(".what-if-answer .notice-problem")
    problem.wait_for()
    said = problem.locator("p").all_inner_texts()
    assert not [one for one in said if [other for other in said if one in other] != [one]]


def test_a_tenant_sees_only_its_own_jobs_and_holders(opened):
    page = opened("jobs", token=TENANT)
    page.get_by_text("pretrain-large").wait_for()
    assert page.get_by_text("speech/").count() == 0
    page.get_by_role("link", name="Cluster").click()
    page.get_by_label("Held by").check()
    page.locator(".legend").get_by_text("vision").wait_for()
    page.locator(".legend").get_by_text("not shown to you").wait_for()
    assert page.locator(".legend").get_by_text("search").count() == 0


def test_another_tenant_s_job_is_refused_by_name(opened):
    page = opened("jobs/speech/asr", token=TENANT)
    page.get_by_text("permission denied").wait_for()
    page.get_by_text("tenant may not list gpujobs in namespace speech").wait_for()


@pytest.mark.parametrize("view", ["queue", "jobs/vision/sweep"])
def test_text_of_tenants_is_not_interpreted(opened, view):
    page = opened(view)
    page.get_by_text(HOSTILE).first.wait_for()
    assert page.locator("img").count() == 0


def test_no_string_becomes_markup_or_code(opened):
    page = opened("nodes")
    page.get_by_text("train-01").wait_for()
    refused = page.evaluate("""() => {
        const tries = [
            () => { document.body.innerHTML = "<b>x</b>"; },
            () => { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); },
            () => { document.createElement("script").text = "1"; },
        ];
        const fails = (each) => { try { each(); return false; } catch { return true; } };
        return tries.filter(fails).length;
    }""")
    assert refused == 3


def test_simulated_gpus_are_called_so(opened):
    page = opened("nodes/lab-1")
    page.get_by_text("2 GPUs (simulated)").wait_for()
    page.get_by_role("link", name="Cluster").click()
    page.get_by_text("4 GPUs simulated.").wait_for()


def test_a_question_is_answered_with_the_node_or_with_what_would_help(opened):
    page = opened("what-if")
    page.get_by_label("Namespace").fill("vision")
    page.get_by_label("GPUs", exact=True).fill("3")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("It would start at once").wait_for()
    expect(page.get_by_label("Answer").get_by_text("train-", exact=False).first).to_be_visible()
    page.get_by_label("Workers").fill("100")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("It can never run").wait_for()


def test_a_view_that_the_server_lacks_says_so_and_the_rest_works(opened):
    page = opened("cost")
    page.get_by_text("Cost: this server does not have it").wait_for()
    page.get_by_role("link", name="Nodes").click()
    page.get_by_text("train-01").wait_for()


def test_an_unknown_address_shows_an_error(opened):
    opened("elsewhere").get_by_text("This view does not exist").wait_for()
    opened("nodes/nowhere").get_by_text("Node nowhere does not exist").wait_for()
    opened("jobs/vision/nothing").get_by_text("there is no GPUJob vision/nothing").wait_for()


def go(page, view):
    """Show another view of the same page."""
    page.evaluate("view => { location.hash = `#/${view}`; }", view)


def settle(page):
    """Until what was asked for is there."""
    expect(page.locator(".loading")).to_have_count(0)


def barriers(page):
    """What axe calls serious."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [summary(each) for each in found["violations"] if each["impact"] in SERIOUS]


def summary(violation):
    nodes = [node["html"][:160] for node in violation["nodes"][:3]]
    return json.dumps([violation["id"], violation["help"], nodes])
