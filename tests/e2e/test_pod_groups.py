# SPDX-License-Identifier: Apache-2.0
"""Pods with gpupack's label start together, wait together and are preempted together."""

import json
import random
import time

import pytest
from chaos import kill_part
from harness import wait_for, why_it_waits
from manifests import Share
from test_queue import limit, quota

GROUP = "gpupack.dev/pod-group"
LEAST = "gpupack.dev/min-members"
PLACE = "gpupack.dev/placement"


def grouped(template, least, name="ring"):
    """Label a pod, or the template of a controller, as a member of a group."""
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = metadata.get("labels", {}) | {GROUP: name}
    metadata["annotations"] = {LEAST: str(least)}
    return template


def deployment(judged, *, replicas, least, **asked):
    made = judged.deployment("ring", replicas=replicas, **asked)
    grouped(made["spec"]["template"], least)
    return made


def indexed_job(judged, *, workers, seconds, **asked):
    """A Job of Kubernetes whose pods are a group."""
    pod = judged.pod("x", seconds=seconds, **asked)
    template = grouped({"spec": pod["spec"]}, workers)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ring"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": workers,
            "completions": workers,
            "backoffLimit": 0,
            "template": template,
        },
    }


def members(kube):
    """Return the pods of the group that are not being deleted."""
    listed = kube.insist("get", "pods", f"--selector={GROUP}=ring", "--output=json")
    items = json.loads(listed)["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def is_gated(pod):
    return bool(pod["spec"].get("schedulingGates"))


def running(kube):
    return [pod for pod in members(kube) if pod["status"]["phase"] == "Running"]


def all_run(kube, number, *, seconds=60):
    def look():
        found = running(kube)
        return found if len(found) == number else None

    return wait_for(look, seconds=seconds, what=f"{number} members run")


def all_wait(kube, number, text, *, seconds=60):
    """Wait until so many members are gated, and one of them says this."""

    def look():
        found = members(kube)
        texts = [why_it_waits(pod) or "" for pod in found]
        is_said = any(text in each for each in texts)
        return len(found) == number and all(map(is_gated, found)) and is_said

    wait_for(look, seconds=seconds, what=f"{number} members wait, since: {text}")


def used(kube):
    """Return the GPUs that the namespace's quota counts as used."""
    return kube.get("gpuquota", "default").get("status", {}).get("used")


@pytest.fixture
def four(kube):
    """This namespace may use four GPUs."""
    kube.submit(quota(limit(4, borrowingLimit=0)))
    return kube


def test_members_wait_for_one_another_and_start_together(four, judged):
    four.submit(deployment(judged, replicas=3, least=4))
    all_wait(four, 3, "waits for members of pod group ring: 3 of 4 exist")
    assert all(PLACE not in pod["metadata"].get("annotations", {}) for pod in members(four))
    four.scale("deployment", "ring", 4)
    pods = all_run(four, 4)
    groups = [json.loads(pod["metadata"]["annotations"][PLACE])["group"] for pod in pods]
    assert len({group["gang"] for group in groups}) == 1
    assert {group["members"] for group in groups} == {4}


def test_a_group_that_does_not_fit_waits_without_holding_anything(four, judged):
    four.submit(judged.pod("first"))
    four.wait_pod("first", "Running")
    four.submit(indexed_job(judged, workers=4, seconds=5))
    all_wait(four, 4, f"borrowing limit of namespace {four.namespace} reached: 4 GPUs requested")
    four.submit(judged.pod("small", gpus=3, seconds=1))
    four.wait_pod("small", "Succeeded")
    assert all(map(is_gated, members(four)))
    four.delete("pod", "first")
    all_run(four, 4)
    four.insist("wait", "job/ring", "--for=condition=Complete", "--timeout=60s")


def test_a_replaced_member_joins_the_others_which_keep_running(four, judged):
    four.submit(deployment(judged, replicas=4, least=4))
    before = {pod["metadata"]["name"]: pod for pod in all_run(four, 4)}
    lost = next(iter(before))
    four.delete("pod", lost, "--wait=false")

    def replaced():
        found = {pod["metadata"]["name"]: pod for pod in running(four)}
        return found if len(found) == 4 and lost not in found else None

    after = wait_for(replaced, seconds=60, what="another member runs")
    survivors = before.keys() & after.keys()
    assert len(survivors) == 3
    starts = [
        [pods[name]["status"]["containerStatuses"][0]["state"] for name in sorted(survivors)]
        for pods in (before, after)
    ]
    assert starts[0] == starts[1]
    gangs = {
        json.loads(pod["metadata"]["annotations"][PLACE])["group"]["gang"] for pod in after.values()
    }
    assert len(gangs) == 1


def test_a_deleted_group_leaves_nothing_behind(four, judged):
    four.submit(deployment(judged, replicas=4, least=4))
    all_run(four, 4)
    wait_for(lambda: used(four) == "4", seconds=60, what="the quota counts four GPUs")
    four.delete("deployment", "ring", "--wait=false")
    wait_for(lambda: not members(four), seconds=60, what="the members are gone")
    wait_for(lambda: used(four) == "0", seconds=60, what="the quota counts no GPU")
    four.submit(judged.job("next", gpus=4))
    four.wait_phase("next", "Succeeded")


def test_members_of_different_priorities_are_refused(four, judged, priority_class):
    pods = [grouped(judged.pod(f"ring-{n}"), 2) for n in range(2)]
    pods[1]["spec"]["priorityClassName"] = priority_class
    four.submit(*pods)
    all_wait(four, 2, "pod group ring: its members have different priorities")


@pytest.fixture
def priority_class(kube):
    name = kube.namespace
    kube.submit(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 7,
            "preemptionPolicy": "Never",
        }
    )
    yield name
    kube.delete("priorityclass", name)


@pytest.mark.slow
@pytest.mark.alone
def test_a_group_is_preempted_as_a_whole_and_starts_again_as_a_whole(kube, cohort, others, judged):
    kube.submit(quota(limit(4)))
    guest = others("guest")
    guest.submit(quota(cohort=cohort))
    guest.submit(deployment(judged, replicas=4, least=4, gpus=4))
    before = {pod["metadata"]["uid"] for pod in all_run(guest, 4, seconds=120)}
    kube.submit(judged.job("owner", gpus=1, seconds=20))
    kube.wait_phase("owner", "Running", seconds=90)
    all_wait(guest, 4, "", seconds=30)
    assert not before & {pod["metadata"]["uid"] for pod in members(guest)}
    kube.wait_phase("owner", "Succeeded", seconds=90)
    all_run(guest, 4, seconds=90)


@pytest.mark.slow
@pytest.mark.alone
def test_a_group_starts_as_a_whole_while_the_scheduler_is_killed(kube, cluster, judged):
    """Some gates may be open when the process dies: its successor opens the others."""
    chance = random.Random(39)
    for _ in range(4):
        kube.submit(indexed_job(judged, workers=8, seconds=15, share=Share(10, 1024)))
        wait_for(lambda: len(members(kube)) == 8, seconds=60, what="the members exist")
        time.sleep(chance.uniform(0, 0.3))
        kill_part(cluster, "extender", chance)
        all_run(kube, 8, seconds=120)
        kube.insist("wait", "job/ring", "--for=condition=Complete", "--timeout=90s")
        kube.delete("job", "ring")
        wait_for(lambda: not members(kube), seconds=60, what="the members are gone")


@pytest.mark.slow
@pytest.mark.alone
def test_a_running_group_survives_the_scheduler(kube, cluster, judged):
    kube.submit(quota(limit(4, borrowingLimit=0)))
    kube.submit(deployment(judged, replicas=4, least=4))
    before = {pod["metadata"]["uid"] for pod in all_run(kube, 4)}
    kill_part(cluster, "extender", random.Random(1))
    kube.submit(judged.job("next", gpus=1, seconds=1))
    kube.wait_reason("next", "BorrowingLimitExceeded", seconds=120)
    assert {pod["metadata"]["uid"] for pod in running(kube)} == before
    kube.delete("deployment", "ring")
    kube.wait_phase("next", "Succeeded", seconds=60)
