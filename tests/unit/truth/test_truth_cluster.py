# SPDX-License-Identifier: Apache-2.0
"""What the truth test takes for a refusal, and in which order it creates pods."""

import asyncio

import msgspec
import pytest
from truth_cluster import ClusterDecider, Watched
from truth_fleet import fleet
from truth_jobs import drawn_jobs
from truth_outcomes import Assignment

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_kubeclient import objects

JOBS = drawn_jobs(seed=1, arrivals=3, shapes=fleet(1).values())
HELD = '[{"uuid":"GPU-a","percent":100,"memoryMiB":1}]'
PLACE = Assignment("n", (DeviceShare(uuid="GPU-a", percent=100, memory_mib=1),))


def shown(name, *, node="", reason="", message=""):
    manifest = {
        "metadata": {"name": name, "annotations": {names.DEVICES_ANNOTATION: HELD}},
        "spec": {"nodeName": node},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
            ]
        },
    }
    return msgspec.convert(manifest, objects.Pod)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "SchedulingGated",
            "does not fit: 24 nodes: too few free GPUs; starts later",
        ),
        ("SchedulingGated", "can never start on these nodes: 24 nodes: too few GPUs"),
        ("Unschedulable", "0/24 nodes are available"),
    ],
)
async def test_a_pod_is_refused_when_its_condition_says_that_it_fits_nowhere(reason, message):
    watched = Watched()
    watched.see("MODIFIED", shown("job", reason=reason, message=message))
    assert await watched.settled["job"] is None


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
        ("SchedulingGated", "will be admitted in the next scheduling cycle"),
        ("", ""),
    ],
)
async def test_a_pod_that_waits_for_its_turn_is_not_refused(reason, message):
    watched = Watched()
    watched.see("ADDED", shown("job", reason=reason, message=message))
    assert not watched.settled["job"].done()


class Cluster:
    """An API server whose scheduler answers late; `refused` pods fit nowhere.

    Pods `bound_late` are bound between their refusal and their deletion.
    """

    def __init__(self, *, refused=(), bound_late=()):
        self.refused, self.bound_late = refused, bound_late
        self.watched, self.calls = Watched(), []

    async def create(self, _resource, manifest, *, namespace):
        name = manifest["metadata"]["name"]
        self.calls.append(f"+{name}")
        asyncio.get_running_loop().call_later(0.001, self._answer, name)

    async def delete(self, _resource, name, *, namespace):
        self.calls.append(f"-{name}")
        is_bound = name not in self.refused or name in self.bound_late
        self.watched.see("DELETED", shown(name, node="n" if is_bound else ""))

    def _answer(self, name):
        self.calls.append(f"?{name}")
        if name in self.refused:
            seen = shown(name, reason="SchedulingGated", message="does not fit: no node")
        else:
            seen = shown(name, node="n")
        self.watched.see("MODIFIED", seen)


async def test_pods_are_created_one_after_the_other_and_refused_ones_are_deleted():
    cluster = Cluster(refused={"job-1"})
    decider = ClusterDecider(cluster, "x", cluster.watched)
    assert await decider.arrive(JOBS) == [PLACE, None, PLACE]
    assert " ".join(cluster.calls) == "+job-0 ?job-0 +job-1 ?job-1 -job-1 +job-2 ?job-2"


async def test_a_pod_that_is_bound_after_its_refusal_fails_the_test():
    cluster = Cluster(refused={"job-0"}, bound_late={"job-0"})
    with pytest.raises(AssertionError, match="job-0 was refused, and bound to n before"):
        await ClusterDecider(cluster, "x", cluster.watched).arrive(JOBS)
