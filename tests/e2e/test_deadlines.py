# SPDX-License-Identifier: Apache-2.0
"""A deadline counts the time in which a job's attempts are active."""

import datetime as dt
import json

import pytest
from harness import wait_for

DEADLINE_SECONDS = 30


def patch(kube, name, **spec):
    body = json.dumps({"spec": spec})
    kube.insist("patch", "gpujob", name, "--type=merge", "--patch", body)


def seconds_since(moment):
    return (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(moment)).total_seconds()


def deadline_of(kube, job):
    return kube.get("job", job)["spec"]["activeDeadlineSeconds"]


@pytest.mark.slow
def test_a_suspended_job_uses_none_of_its_deadline_and_has_the_rest_when_it_is_resumed(
    kube, judged
):
    kube.submit(judged.job("timed", seconds=600, activeDeadlineSeconds=DEADLINE_SECONDS))
    kube.wait_phase("timed", "Running", seconds=DEADLINE_SECONDS)
    patch(kube, "timed", suspend=True)
    status = kube.wait_phase("timed", "Suspended")["status"]
    used = status["activeSeconds"]
    assert 0 <= used < DEADLINE_SECONDS
    began = status["attempts"][0]["startedAt"]
    wait_for(
        lambda: seconds_since(began) > DEADLINE_SECONDS + 2,
        seconds=60,
        what="its deadline would be over if it counted from the first start",
    )
    patch(kube, "timed", suspend=False)
    resumed = wait_for(
        lambda: kube.gpujob("timed") if kube.gpujob("timed")["status"]["attempt"] == 2 else None,
        seconds=60,
        what="it starts again",
    )["status"]
    assert resumed["phase"] in {"Admitted", "Running"}
    assert seconds_since(resumed["resumedAt"]) < seconds_since(began) - DEADLINE_SECONDS
    ended = kube.wait_phase("timed", "Failed", seconds=90)["status"]
    assert ended["reason"] == "DeadlineExceeded"
    assert DEADLINE_SECONDS <= ended["activeSeconds"] <= DEADLINE_SECONDS + 10
    assert [each["outcome"] for each in ended["attempts"]] == ["Suspended", "DeadlineExceeded"]


def test_a_job_that_lost_its_pod_has_the_rest_of_its_deadline(kube, judged):
    kube.submit(judged.job("loser", seconds=600, activeDeadlineSeconds=600))
    kube.wait_phase("loser", "Running")
    (pod,) = kube.pods("loser")
    kube.delete("pod", pod["metadata"]["name"], "--grace-period=1")

    def begun_again():
        found = kube.gpujob("loser")["status"]
        return found if found["attempt"] == 2 and found["phase"] == "Running" else None

    status = wait_for(begun_again, seconds=90, what="it runs again")
    assert status["activeSeconds"] > 0
    assert abs(deadline_of(kube, "loser-2") - (601 - status["activeSeconds"])) <= 2
