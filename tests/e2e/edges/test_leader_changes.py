# SPDX-License-Identifier: Apache-2.0
"""Two schedulers, of which the leading one stops at work: hung, or dead.

A hung leader is the harder case. It resumes with stale knowledge, and with calls in progress that
its successor does not know.
"""

import time

import pytest
from harness import wait_for
from parts import SCHEDULER, leader, pods_of_part, rolled_out
from pausing import kill_in_pod, pod_paused

PATTERNS = ("kube-scheduler.*gpupack", "gpupack_extender")
JOBS = 12


@pytest.fixture
def two_schedulers(system, whole):
    """Run a leader and a standby, both Ready, whose election has ended."""
    assert len(pods_of_part(system, "scheduler")) == 2
    yield system
    rolled_out(system, SCHEDULER)


def new_leader(system, old):
    found = leader(system, "scheduler")
    return found if found and found["metadata"]["uid"] != old["metadata"]["uid"] else None


def some_ended(kube, count):
    ended = [job for job in kube.gpujobs() if job.get("status", {}).get("phase") == "Succeeded"]
    return len(ended) >= count


def test_a_leader_that_hangs_and_returns_next_to_its_successor_assigns_no_gpu_twice(
    kube, two_schedulers, cluster, judged, verdict, tell
):
    storm = judged.storm(jobs=JOBS, seed=7)
    system = two_schedulers
    old, names = leader(system, "scheduler"), [job["metadata"]["name"] for job in storm]
    kube.submit(*storm)
    wait_for(lambda: some_ended(kube, 2), seconds=60, what="the storm is under way")
    with pod_paused(cluster, old, *PATTERNS):
        began = time.monotonic()
        wait_for(lambda: new_leader(system, old), seconds=60, what="the standby leads")
        taken = time.monotonic() - began
        behind = {job["metadata"]["name"] for job in kube.gpujobs() if not is_over(job)}
        assert behind, "the storm was over before the leader changed"
        # The old leader resumes in the middle of its successor's work.
        wait_for(
            lambda: any(is_over(kube.gpujob(name)) for name in behind),
            seconds=60,
            what="the successor brings jobs to an end",
        )
        served = time.monotonic() - began
    jobs = kube.wait_finished(names, seconds=240)
    repeated = verdict(jobs)
    tell(f"the successor leads after {taken:.1f} s, a job ended after {served:.1f} s, {repeated=}")


def test_after_the_leader_is_killed_the_standby_finishes_the_storm_and_assigns_no_gpu_twice(
    kube, two_schedulers, cluster, judged, verdict, tell
):
    storm = judged.storm(jobs=JOBS, seed=8)
    system = two_schedulers
    old, names = leader(system, "scheduler"), [job["metadata"]["name"] for job in storm]
    kube.submit(*storm)
    wait_for(lambda: some_ended(kube, 2), seconds=60, what="the storm is under way")
    kill_in_pod(cluster, old, *PATTERNS)
    # Deleted, too; otherwise the kubelet would restart the leader before its Lease expires.
    system.kubectl("delete", "pod", old["metadata"]["name"], "--force", "--grace-period=0")
    began = time.monotonic()
    wait_for(lambda: new_leader(system, old), seconds=60, what="the standby leads")
    taken = time.monotonic() - began
    jobs = kube.wait_finished(names, seconds=240)
    tell(f"the successor leads after {taken:.1f} s, repeated={verdict(jobs)}")


def is_over(job):
    return job.get("status", {}).get("phase") in {"Succeeded", "Failed"}
