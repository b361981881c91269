# SPDX-License-Identifier: Apache-2.0
"""Pods with several containers that have GPUs: each container sees its own and keeps them."""

import pytest
from harness import annotated_devices, wait_for, why_it_waits
from manifests import limits, on_node

SHOW = "import os; print(os.environ['GPUPACK_DEVICES'])"
END = "import os, signal; os.kill(1, signal.SIGTERM)"


@pytest.fixture(autouse=True)
def nothing_is_refused(refusals):
    yield
    assert refusals() == []


def several(judged, name, *, restart="Always", **gpus):
    """A pod with a container for each, which has so many GPUs until it is ended."""
    pod = judged.pod(name, restartPolicy=restart)
    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [
        container | {"name": each, "resources": {"limits": limits(count, None)}}
        for each, count in gpus.items()
    ]
    return pod


def statuses(kube, name):
    return {each["name"]: each for each in kube.pod(name)["status"].get("containerStatuses", ())}


def wait_running(kube, name, *, restarts, seconds=180):
    """Wait until all containers run, each with at least so many restarts."""

    def look():
        found = statuses(kube, name)
        return found.keys() == restarts.keys() and all(
            "running" in found[each]["state"] and found[each]["restartCount"] >= number
            for each, number in restarts.items()
        )

    wait_for(look, seconds=seconds, what=f"all containers of {name} run")


def inside(kube, name, container, program):
    return kube.insist("exec", name, "-c", container, "--", "python3", "-S", "-c", program)


def seen(kube, name, *containers):
    """The GPUs that each container's own environment names."""
    return [inside(kube, name, each, SHOW).strip().split(",") for each in containers]


def test_each_container_sees_its_own_gpus_and_keeps_them_when_it_restarts(kube, judged):
    kube.submit(several(judged, "pair", one=1, two=2))
    wait_running(kube, "pair", restarts={"one": 0, "two": 0})
    first, *rest = annotated_devices(kube.pod("pair"))
    assert seen(kube, "pair", "one", "two") == [[first], rest]
    assert len({first, *rest}) == 3
    inside(kube, "pair", "two", END)
    wait_running(kube, "pair", restarts={"one": 0, "two": 1})
    assert seen(kube, "pair", "one", "two") == [[first], rest]
    assert statuses(kube, "pair")["one"]["restartCount"] == 0


@pytest.mark.alone
def test_a_pods_gpus_are_those_of_all_its_containers_until_all_have_ended(kube, cluster, judged):
    """A container that has ended keeps its GPUs: the kubelet frees device tokens with the pod."""
    node = cluster.nodes()[0]
    kube.submit(on_node(several(judged, "pair", restart="Never", one=3, two=5), node))
    wait_running(kube, "pair", restarts={"one": 0, "two": 0})
    inside(kube, "pair", "one", END)
    wait_for(
        lambda: "terminated" in statuses(kube, "pair")["one"]["state"],
        seconds=60,
        what="the first container has ended",
    )
    kube.submit(on_node(judged.pod("next"), node))
    wait_for(lambda: why_it_waits(kube.pod("next")), seconds=60, what="the next pod waits")
    inside(kube, "pair", "two", END)
    kube.wait_pod("next", "Running")
