# SPDX-License-Identifier: Apache-2.0
"""Pods of their own that hold GPUs and use none: reported, and evicted where that is wanted.

GPUs of the cluster are simulated, and so is their idleness: pods say it of themselves.
"""

import datetime as dt
import time

import pytest
from harness import pod_condition, wait_for
from parts import SCHEDULER, all_up

pytestmark = [pytest.mark.alone, pytest.mark.slow]

IDLE, RECLAIM = "simulated.gpupack.dev/idle", "gpupack.dev/reclaim-when-idle"
AFTER_SECONDS = 20


@pytest.fixture
def cohort(kube):
    """This namespace's pods may be idle for so long."""
    rule = {"afterSeconds": AFTER_SECONDS, "reclaim": "OptedIn"}
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUCohort",
            "metadata": {"name": kube.namespace},
            "spec": {"idlePods": rule},
        },
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"cohort": kube.namespace, "gpus": []},
        },
    )
    yield kube.namespace
    kube.delete("gpucohort", kube.namespace)


def notebook(judged, name, **annotations):
    pod = judged.pod(name)
    pod["metadata"]["annotations"] = {IDLE: "true"} | annotations
    return pod


def server(judged, name, **annotations):
    deployment = judged.deployment(name)
    deployment["spec"]["template"]["metadata"]["annotations"] = {IDLE: "true"} | annotations
    return deployment


def budget(app):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}},
    }


def idle_since(kube, pod):
    """Return since when the pod is idle; None if the GPUNode does not say so."""
    node = kube.get("gpunode", pod["spec"]["nodeName"])
    held = pod["metadata"]["annotations"]["gpupack.dev/devices"]
    (found,) = [each for each in node["status"]["devices"] if each["uuid"] in held]
    return found.get("idleSince")


def idle_condition(kube, name):
    found = pod_condition(kube.pod(name), "gpupack.dev/Idle")
    return found if found and found["status"] == "True" else None


def test_idle_pods_are_reported_and_those_that_opted_in_evicted_as_their_budgets_allow(
    kube, cohort, judged, tell
):
    kube.submit(notebook(judged, "stays"), judged.pod("works"))
    kube.submit(server(judged, "web", **{RECLAIM: "true"}), budget("web"))
    begin = time.monotonic()
    kube.wait_pod("stays", "Running")
    kube.wait_pod("works", "Running")
    (first,) = kube.wait_scale("deployment", "web")
    condition = wait_for(
        lambda: idle_condition(kube, "stays"), seconds=90, what="it gets the idle condition"
    )
    tell(f"a pod that never used its GPU got its condition after {time.monotonic() - begin:.0f} s")
    assert (
        f"longer than the {AFTER_SECONDS} s that GPUCohort {cohort} allows" in condition["message"]
    )
    assert "GpuIdle" in kube.events("stays")
    name = first["metadata"]["name"]
    wait_for(
        lambda: "a PodDisruptionBudget does not allow it now" in kube.event_texts() or None,
        seconds=60,
        what="the budget holds the eviction up",
    )
    assert kube.pod(name)["metadata"].get("deletionTimestamp") is None
    kube.delete("poddisruptionbudget", "web")
    wait_for(
        lambda: name not in {pod["metadata"]["name"] for pod in kube.pods_of_app("web")} or None,
        seconds=60,
        what="the pod that opted in is evicted",
    )
    assert idle_condition(kube, "works") is None
    assert kube.pod("stays")["status"]["phase"] == "Running"


def test_a_restart_of_the_scheduler_does_not_change_the_idle_time(kube, system, cohort, judged):
    kube.submit(notebook(judged, "notebook", **{RECLAIM: "true"}))
    pod = kube.wait_pod("notebook", "Running")
    since = wait_for(lambda: idle_since(kube, pod), seconds=60, what="the agent says since when")
    system.insist("rollout", "restart", SCHEDULER)
    all_up(system)
    assert idle_since(kube, pod) == since
    wait_for(
        lambda: kube.kubectl("get", "pod", "notebook").returncode != 0 or None,
        seconds=90,
        what="it is evicted",
    )
    began = dt.datetime.fromisoformat(since).timestamp()
    assert AFTER_SECONDS - 1 <= time.time() - began <= AFTER_SECONDS + 75


def test_the_idle_condition_is_cleared_when_the_pod_works_again(kube, cohort, judged):
    kube.submit(notebook(judged, "notebook"))
    kube.wait_pod("notebook", "Running")
    wait_for(
        lambda: idle_condition(kube, "notebook"), seconds=90, what="it gets the idle condition"
    )
    kube.insist("annotate", "pod", "notebook", f"{IDLE}-")
    found = wait_for(
        lambda: (
            pod_condition(kube.pod("notebook"), "gpupack.dev/Idle")["status"] == "False" or None
        ),
        seconds=90,
        what="it works again",
    )
    assert found
