# SPDX-License-Identifier: Apache-2.0
"""Jobs with several roles: all workers start together, end together and are shown by role."""

import pytest
from harness import JOB_LABEL, stream, wait_for
from manifests import UNTIL_TERM, Share, gpujob
from test_examples import documents
from test_queue import limit, quota

SECONDS = 120
SHARE = Share(40, 8192)


def role(judged, name, *, seconds=UNTIL_TERM, share=None, exit_code=0, **spec):
    """A role whose workers hold what they are given."""
    size = {"share": SHARE} if share else {"gpus": spec.pop("gpus")}
    built = judged.job(name, seconds=seconds, exit_code=exit_code, **size)["spec"]
    kept = {key: built[key] for key in ("gpus", "share", "template") if key in built}
    if share:
        kept.pop("gpus", None)
    return {"name": name, **kept, **spec}


def leader_and_workers(judged, *, seconds=UNTIL_TERM, exit_code=0, **spec):
    """A leader on a share, and two workers with two GPUs each on different nodes."""
    job = gpujob("gang", **spec)
    del job["spec"]["gpus"]
    job["spec"]["roles"] = [
        role(judged, "leader", share=True, seconds=seconds, exit_code=exit_code),
        role(judged, "worker", gpus=2, workers=2, spread={"oneWorkerPerNode": True}),
    ]
    return job


def roles(job):
    """Return workers, running workers and GPUs by role."""
    return {
        each["name"]: (each["workers"], each.get("running", 0), each["gpus"])
        for each in job["status"]["roles"]
    }


RUNNING = {"leader": (1, 1, "40%"), "worker": (2, 2, "4")}
WAITING = {"leader": (1, 0, "40%"), "worker": (2, 0, "4")}


def runs(kube):
    """Wait until the gang runs, and return its pods of the current attempt by role."""

    def look():
        job = kube.gpujob("gang")
        running = job.get("status", {}).get("phase") == "Running"
        return job if running and roles(job) == RUNNING else None

    attempt = str(wait_for(look, seconds=SECONDS, what="all roles run")["status"]["attempt"])
    found = {}
    for pod in kube.pods("gang"):
        labels = pod["metadata"]["labels"]
        if labels["gpupack.dev/attempt"] == attempt:
            found.setdefault(labels["gpupack.dev/role"], []).append(pod)
    return found


def living(kube):
    return [pod for pod in kube.pods("gang") if pod["status"]["phase"] in {"Pending", "Running"}]


def test_the_roles_example_succeeds_with_a_result_of_each_worker(kube):
    kube.insist("apply", "-f", "-", stdin=stream(documents("roles")))
    job = kube.wait_phase("roles", "Succeeded", "Failed", seconds=SECONDS)
    status = job["status"]
    assert (status["phase"], status["workers"], status["gpus"]) == ("Succeeded", 3, "4+10%")
    results = {each["worker"]: each["headline"] for each in status["results"]}
    assert results[0] == "leader: 332833500"
    assert sorted(results) == [0, 1, 2]
    done = {each["name"]: each["succeeded"] for each in status["roles"]}
    assert done == {"leader": 1, "worker": 2}
    header, row = kube.insist("get", "gpujob", "roles").splitlines()
    assert dict(zip(header.split(), row.split(), strict=False))["WORKERS"] == "3"


def test_all_workers_of_all_roles_start_or_none(kube, judged):
    """The workers alone would fit, and so would the leader; all of them do not."""
    kube.submit(quota(limit(5, borrowingLimit=0)))
    kube.submit(judged.job("first", seconds=SECONDS))
    kube.wait_phase("first", "Running")
    kube.submit(leader_and_workers(judged))
    job = kube.wait_reason("gang", "BorrowingLimitExceeded")
    assert roles(job) == WAITING
    assert kube.pods("gang") == []
    kube.delete("gpujob", "first")
    pods = runs(kube)
    assert {name: len(found) for name, found in pods.items()} == {"leader": 1, "worker": 2}
    assert len({pod["spec"]["nodeName"] for pod in pods["worker"]}) == 2


def test_all_roles_restart_together(kube, judged):
    kube.submit(leader_and_workers(judged, seconds=20, exit_code=3, maxRestarts=1))
    first = runs(kube)
    wait_for(
        lambda: kube.gpujob("gang")["status"]["attempt"] == 2,
        seconds=SECONDS,
        what="the second attempt",
    )
    second = runs(kube)
    before = {pod["metadata"]["uid"] for found in first.values() for pod in found}
    after = {pod["metadata"]["uid"] for found in second.values() for pod in found}
    assert (len(before), len(after), before & after) == (3, 3, set())
    job = kube.wait_phase("gang", "Failed", seconds=SECONDS)
    assert (job["status"]["restarts"], roles(job)["worker"][1]) == (1, 0)
    wait_for(lambda: not living(kube), seconds=SECONDS, what="no worker outlives the gang")


@pytest.mark.slow
@pytest.mark.alone
def test_all_roles_are_preempted_together_and_run_again(kube, others, judged, cohort):
    kube.submit(quota(limit(16)))
    guest = others("guest")
    guest.submit(quota(cohort=cohort))
    guest.submit(leader_and_workers(judged))
    runs(guest)
    kube.submit(judged.job("owner", workers=2, gpus=8, seconds=5))
    kube.wait_phase("owner", "Running", seconds=SECONDS)
    job = guest.gpujob("gang")
    (attempt,) = job["status"]["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Preempted", "InCohortReclamation")
    assert roles(job) == WAITING
    assert not living(guest)
    kube.wait_phase("owner", "Succeeded", seconds=SECONDS)
    assert {name: len(found) for name, found in runs(guest).items()} == {"leader": 1, "worker": 2}


def test_deleting_the_job_removes_all_pods(kube, judged):
    kube.submit(leader_and_workers(judged))
    runs(kube)
    kube.delete("gpujob", "gang")
    left = ("get", "jobs,pods", "-l", f"{JOB_LABEL}=gang", "-o", "name")
    wait_for(lambda: not kube.insist(*left), seconds=SECONDS, what="Jobs and pods are gone")
