# SPDX-License-Identifier: Apache-2.0
"""What GPU-hours cost, as tenants read it, while the accountant is killed."""

import csv
import datetime as dt
import io
import secrets

import pytest
from chaos import kill_process
from harness import annotation, placed, pod_condition, wait_for
from manifests import Share
from parts import rolled_out
from rest_clients import client, viewer

PRICE = 2.5
"""Of the dev cluster's H100, in values-devcluster.yaml."""
SHARE = Share(percent=30, memory_mib=8192)
ACCOUNTANT = "gpupack_apiserver.accounts"


@pytest.fixture
def api(system):
    with client(system) as calling:
        yield calling


def moment(text):
    return dt.datetime.fromisoformat(text)


def pod_seconds(pod):
    """Return the seconds from a pod's binding to the end of its container."""
    (status,) = pod["status"]["containerStatuses"]
    ended = moment(status["state"]["terminated"]["finishedAt"])
    return (
        ended - moment(pod_condition(pod, "PodScheduled")["lastTransitionTime"])
    ).total_seconds()


def attempt_seconds(job):
    (attempt,) = job["status"]["attempts"]
    return (moment(attempt["finishedAt"]) - moment(attempt["startedAt"])).total_seconds()


def costs(api, token, **query):
    """The answer; the accountant may just have been killed."""
    headers = {"Authorization": f"Bearer {token}"}

    def look():
        answer = api.get("cost", params=query, headers=headers)
        return None if answer.status_code in {429, 503} else answer

    return wait_for(look, seconds=60, what="costs are reported", every_seconds=1)


def rows(api, token, kube, run):
    """Return the rows of this run: costs of earlier namespaces of this name are kept, too."""
    found = costs(api, token, group_by="job", namespace=kube.namespace).json()["rows"]
    return {row["job"]: row for row in found if row["job"].endswith(run)}


def killed(cluster, system):
    assert kill_process(cluster, ACCOUNTANT)
    rolled_out(system, "deployment/gpupack-cost")


@pytest.mark.alone
@pytest.mark.slow
def test_costs_are_what_objects_tell_whenever_the_accountant_is_killed(
    kube, cluster, system, api, judged
):
    run = secrets.token_hex(3)
    names = [f"{name}-{run}" for name in ("whole", "share", "gang")]
    with viewer(kube) as token:
        kube.submit(
            judged.pod(names[0], gpus=1, seconds=8),
            judged.pod(names[1], share=SHARE, seconds=10),
            judged.job(names[2], workers=2, gpus=1, seconds=8),
        )
        kube.wait_pod(names[0], "Running", "Succeeded", seconds=120)
        killed(cluster, system)
        job = kube.wait_phase(names[2], "Succeeded", "Failed", seconds=120)
        whole = kube.wait_pod(names[0], "Succeeded", seconds=120)
        share = kube.wait_pod(names[1], "Succeeded", seconds=120)
        ((device,),) = [annotation(share)]
        expected = {
            f"Pod/{names[0]}": pod_seconds(whole),
            f"Pod/{names[1]}": pod_seconds(share) * device["percent"] / 100,
            names[2]: attempt_seconds(job) * len(placed(job)),
        }
        assert attempt_seconds(job) >= max(map(pod_seconds, kube.pods(names[2])))

        def reported():
            found = rows(api, token, kube, run)
            hours = {name: row["allocated_gpu_hours"] * 3600 for name, row in found.items()}
            close = hours.keys() == expected.keys() and all(
                abs(hours[name] - expected[name]) < 1 for name in expected
            )
            return found if close else None

        wait_for(reported, seconds=60, what=f"costs are those of {expected}")
        kube.delete("pod", names[0])
        killed(cluster, system)
        found = wait_for(reported, seconds=60, what="nothing is lost or counted twice")
        row = found[f"Pod/{names[0]}"]
        assert row["cost"] == pytest.approx(row["allocated_gpu_hours"] * PRICE, abs=1e-4)
        assert (row["used_gpu_hours"], row["idle_gpu_hours"]) == (None, None)


def test_a_tenant_reads_its_costs_as_json_and_csv(kube, others, api, judged):
    other = others("other")
    other.submit(judged.pod("secret", gpus=1, seconds=2))
    kube.submit(judged.pod("mine", gpus=1, seconds=2))
    with viewer(kube) as token:
        kube.wait_pod("mine", "Succeeded", seconds=120)
        other.wait_pod("secret", "Succeeded", seconds=120)
        answer = wait_for(
            lambda: found if "mine" in (found := costs(api, token, group_by="job")).text else None,
            seconds=60,
            what="the pod is in the costs",
        )
        assert "secret" not in answer.text
        assert answer.json()["unheld"] is None
        text = costs(api, token, group_by="namespace", format="csv").text
        (row,) = csv.DictReader(io.StringIO(text))
        assert (row["namespace"], row["currency"]) == (kube.namespace, "EUR")
        refused = costs(api, token, namespace=other.namespace)
        assert refused.status_code == 403


def test_unauthenticated_callers_get_no_costs(api):
    assert api.get("cost").status_code == 401
