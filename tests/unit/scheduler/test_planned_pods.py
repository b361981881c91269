# SPDX-License-Identifier: Apache-2.0
"""GPUJobs whose pods are not what their templates say: admission adds to them."""

import msgspec
import pytest
from extender_builders import job, places, plan_request

from gpupack_crds.plan import PlanRefusal
from gpupack_scheduler.ledger.pending_job import MAX_RULES_BYTES, PendingJob
from gpupack_scheduler.requests import gang_request

TEMPLATE = {"spec": {"containers": [{"name": "worker"}]}}


def worker(cpu):
    return {"name": "worker", "resources": {"requests": {"cpu": cpu}}}


def pod_spec(cpu="1", **rules):
    return {"containers": [worker(cpu)], **rules}


def asking(planned):
    """A GPUJob that waits, planned as this pod."""
    return job("train", template=TEMPLATE, planned=planned, kind=PendingJob)


def test_an_onlooker_plans_the_pod_that_admission_made():
    planned = {"spec": pod_spec("20", nodeSelector={"pool": "gold"})}
    (request,) = gang_request.of_placed(asking(planned), ()).requests
    assert (request.cpu, request.selector.labels) == (20_000, (("pool", "gold"),))


def test_only_one_of_template_and_planned_pod_is_stored():
    large = {"spec": {"containers": [worker("1")], "nodeSelector": {"pool": "x" * 9000}}}
    shown = job("train", template=large, planned={"spec": pod_spec("20")}, kind=PendingJob)
    assert shown.spec.template is None
    assert len(msgspec.json.encode(shown)) < 1000


@pytest.mark.parametrize(
    ("planned", "grace"),
    [
        (pod_spec(), 600),
        (pod_spec(terminationGracePeriodSeconds=600), 600),
        (pod_spec(terminationGracePeriodSeconds=900), 900),
    ],
    ids=["by an earlier release", "as the template", "by a webhook"],
)
def test_a_job_leaves_within_the_grace_period_of_its_pods(planned, grace):
    template = {"spec": {"terminationGracePeriodSeconds": 600}}
    shown = job("train", template=template, planned={"spec": planned}, kind=PendingJob)
    assert shown.grace == grace


@pytest.mark.parametrize(
    "planned",
    [{"omitted": True}, {"spec": {"nodeSelector": {"pool": "x" * MAX_RULES_BYTES}}}],
    ids=["not written", "too many rules"],
)
def test_a_read_only_ledger_does_not_plan_a_template_without_its_pod(planned):
    assert gang_request.of_placed(asking(planned), ()) is None


def test_cpu_of_a_recorded_placement_is_that_of_the_planned_pod(world):
    planned = {"spec": pod_spec("20", overhead={"cpu": "2"})}
    held = {"phase": "Admitted", "placed": [("a", [0])]}
    world.ledger.jobs.upsert(job("train", attempt=1, template=TEMPLATE, planned=planned, **held))
    (claim,) = world.ledger.claims.workers.values()
    assert claim.placement.cpu == 22_000


def test_a_plan_for_another_pod_than_is_asked_for_now_is_made_again(world):
    before = places(world.plan(plan_request("train", pod_spec=pod_spec("1"))))
    again = world.plan(plan_request("train", pod_spec=pod_spec("1")))
    assert places(again) == before
    refused = world.plan(plan_request("train", pod_spec=pod_spec("1000")))
    assert isinstance(refused, PlanRefusal)
    assert (refused.reason, *refused.counts) == ("Unsatisfiable", "InsufficientCpu")
    assert world.ledger.claims.workers == {}
    assert places(world.plan(plan_request("train", pod_spec=pod_spec("1")))) == before


def test_a_pod_that_waits_and_changes_waits_as_what_it_is_now(world):
    world.plan(plan_request("train", pod_spec=pod_spec("1000")))
    assert places(world.plan(plan_request("train", pod_spec=pod_spec("1"))))
