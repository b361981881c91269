# SPDX-License-Identifier: Apache-2.0
"""Two schedulers, and the leading one stops in the middle: hung, or dead.

A hung leader is the harder case. It comes back with all its old knowledge, and with calls in its
hands that its successor knows nothing of.
"""

import contextlib
import time

import pytest
from harness import wait_for
from parts import SCHEDULER, lease_holder, pods_of_part, rolled_out
from pausing import kill_in_pod, pod_paused

LEASE = "gpupack-scheduler"
PATTERNS = ("kube-scheduler.*gpupack", "gpupack_extender")
JOBS = 12


@pytest.fixture
def two_schedulers(system, whole):
    """A leader and a standby, whose election has ended."""
    with contextlib.ExitStack() as stack:
        stack.callback(rolled_out, system, SCHEDULER)
        stack.callback(system.kubectl, "scale", SCHEDULER, "--replicas=1")
        system.kubectl("scale", SCHEDULER, "--replicas=2")
        wait_for(lambda: len(running(system)) == 2, seconds=60, what="two schedulers run")
        wait_for(lambda: leader(system), seconds=30, what="one of them leads")
        yield system


def running(system):
    """Pods whose containers all run; a standby's never all are ready."""
    return [
        pod
        for pod in pods_of_part(system, "scheduler")
        if len(pod["status"].get("containerStatuses", ())) == 2
        and all("running" in status["state"] for status in pod["status"]["containerStatuses"])
    ]


def leader(system):
    """The pod that leads; None where it is not there any more."""
    holder = lease_holder(system, LEASE).rpartition("_")[0]
    return next((p for p in running(system) if p["metadata"]["name"] == holder), None)


def new_leader(system, old):
    found = leader(system)
    return found if found and found["metadata"]["uid"] != old["metadata"]["uid"] else None


def some_ended(kube, count):
    ended = [job for job in kube.gpujobs() if job.get("status", {}).get("phase") == "Succeeded"]
    return len(ended) >= count


def test_a_leader_that_hangs_and_comes_back_beside_its_successor_gives_no_gpu_twice(
    kube, two_schedulers, cluster, judged, verdict, tell
):
    storm = judged.storm(jobs=JOBS, seed=7)
    system = two_schedulers
    old, names = leader(system), [job["metadata"]["name"] for job in storm]
    kube.submit(*storm)
    wait_for(lambda: some_ended(kube, 2), seconds=60, what="the storm is under way")
    with pod_paused(cluster, old, *PATTERNS):
        began = time.monotonic()
        wait_for(lambda: new_leader(system, old), seconds=30, what="the standby leads")
        taken = time.monotonic() - began
        behind = {job["metadata"]["name"] for job in kube.gpujobs() if not is_over(job)}
        assert behind, "the storm was over before the leader changed"
        # The old one comes back into the middle of its successor's work.
        wait_for(
            lambda: any(is_over(kube.gpujob(name)) for name in behind),
            seconds=60,
            what="the successor brings jobs to an end",
        )
        served = time.monotonic() - began
    jobs = kube.wait_finished(names, seconds=240)
    repeated = verdict(jobs)
    tell(f"Lease taken after {taken:.1f} s, a job ended after {served:.1f} s, {repeated=}")


def test_after_the_leader_is_killed_the_standby_finishes_the_storm_and_gives_no_gpu_twice(
    kube, two_schedulers, cluster, judged, verdict, tell
):
    storm = judged.storm(jobs=JOBS, seed=8)
    system = two_schedulers
    old, names = leader(system), [job["metadata"]["name"] for job in storm]
    kube.submit(*storm)
    wait_for(lambda: some_ended(kube, 2), seconds=60, what="the storm is under way")
    kill_in_pod(cluster, old, *PATTERNS)
    # Deleted too, or the kubelet would start the leader anew before its Lease is over.
    system.kubectl("delete", "pod", old["metadata"]["name"], "--force", "--grace-period=0")
    began = time.monotonic()
    wait_for(lambda: new_leader(system, old), seconds=30, what="the standby leads")
    taken = time.monotonic() - began
    jobs = kube.wait_finished(names, seconds=240)
    tell(f"Lease taken after {taken:.1f} s, repeated={verdict(jobs)}")


def is_over(job):
    return job.get("status", {}).get("phase") in {"Succeeded", "Failed"}
