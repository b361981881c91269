# SPDX-License-Identifier: Apache-2.0
"""Quotas, and jobs that are stopped for others, with the real scheduler and operator."""

import json
import re
from collections import Counter

import pytest
from harness import condition, wait_for
from manifests import Share

MODEL = "*"


def limit(nominal, **limits):
    return {"model": MODEL, "nominal": nominal, **limits}


def quota(*gpus, **spec):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUQuota",
        "metadata": {"name": "default"},
        "spec": {"gpus": list(gpus), **spec},
    }


def test_a_quota_limits_a_namespace_and_its_status_has_the_usage(kube, judged):
    kube.submit(quota(limit(1, borrowingLimit=0)))
    kube.submit(judged.job("first", seconds=120))
    kube.wait_phase("first", "Running")
    kube.submit(judged.job("second"))
    job = kube.wait_reason("second", "BorrowingLimitExceeded")
    message = condition(job, "Admitted")["message"]
    assert f"borrowing limit of namespace {kube.namespace} reached: 1 GPU requested" in message
    # Jobs of other tests, which have no deadline either, may hold what it needs as well.
    assert re.search("no start time is known: [0-9]+ jobs? or pods? without a deadline", message)

    def waiting():
        status = kube.get("gpuquota", "default").get("status", {})
        return status if status.get("waiting") else None

    shown = wait_for(waiting, seconds=60, what="that one waits")
    assert (shown["nominal"], shown["used"], shown["borrowed"]) == ("1", "1", "0")
    assert (shown["running"], shown["waiting"]) == (1, 1)
    header, row = kube.insist("get", "gpuquotas").splitlines()
    assert header.split()[:6] == ["NAME", "COHORT", "NOMINAL", "USED", "BORROWED", "LENT"]
    assert row.split()[1:3] == ["1", "1"]
    kube.submit(quota(limit(2, borrowingLimit=0)))
    kube.wait_phase("second", "Succeeded")


def test_a_share_counts_against_a_quota_by_its_part(kube, judged):
    kube.submit(quota(limit(1, borrowingLimit=0)))
    half = Share(50, 1024)
    kube.submit(*(judged.job(f"half-{n}", share=half, seconds=60) for n in range(3)))

    def phases():
        found = Counter(job.get("status", {}).get("phase", "") for job in kube.gpujobs())
        return found if found == {"Running": 2, "Pending": 1} else None

    wait_for(phases, seconds=60, what="two halves run and one waits")


def test_two_quotas_in_one_namespace_are_refused_by_name(kube):
    refused = kube.apply(quota() | {"metadata": {"name": "another"}})
    assert "a namespace has one GPUQuota; call it default" in refused.stderr


def test_a_cohort_cycle_is_reported_and_blocks_no_job(kube, judged, cohort):
    kube.submit(quota(limit(1), cohort="nowhere"))
    kube.submit(judged.job("job"))
    kube.wait_phase("job", "Succeeded")
    problem = wait_for(
        lambda: kube.get("gpuquota", "default").get("status", {}).get("problem"),
        seconds=60,
        what="what does not count",
    )
    assert "there is no GPUCohort nowhere" in problem
    loop = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUCohort",
        "metadata": {"name": cohort},
        "spec": {"parent": cohort},
    }
    assert "a cohort cannot be its own parent" in kube.apply(loop).stderr


@pytest.mark.parametrize(
    "spec",
    [{"parent": "a"}, {"gpus": [limit(1)]}, {"order": "Strict"}, {"minRunSeconds": 0}],
    ids=lambda spec: next(iter(spec)),
)
def test_the_cohort_cluster_has_no_own_rules(kube, spec):
    whole = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUCohort",
        "metadata": {"name": "cluster"},
        "spec": spec,
    }
    assert "GPUCohort cluster is the whole cluster" in kube.apply(whole).stderr


@pytest.mark.parametrize("kind", ["gpuquotas", "gpucohorts"])
def test_a_tenant_writes_no_quota(resident, kind):
    verbs = ("create", "update", "patch", "delete")
    asked = f"{kind}.gpupack.dev"
    can = [
        f"{verb} {' '.join(of)}"
        for verb in verbs
        for of in ((), ("--subresource=status",))
        if resident.kubectl("auth", "can-i", verb, asked, *of).returncode == 0
    ]
    assert can == []


def test_a_tenant_reads_the_quota_of_its_namespace_and_no_other(resident, others):
    assert resident.kubectl("get", "gpuquotas").returncode == 0
    other = others("other").namespace
    assert resident.kubectl("get", "gpuquotas", f"--namespace={other}").returncode != 0


def test_a_deadline_cannot_be_extended_after_admission(kube, judged):
    kube.submit(judged.job("job", seconds=60, activeDeadlineSeconds=300))
    kube.wait_phase("job", "Running")
    longer = json.dumps({"spec": {"activeDeadlineSeconds": 3000}})
    refused = kube.kubectl("patch", "gpujob", "job", "--type=merge", f"--patch={longer}")
    assert "can only be lowered after the job was admitted" in refused.stderr
    none = json.dumps({"spec": {"activeDeadlineSeconds": None}})
    assert kube.kubectl("patch", "gpujob", "job", "--type=merge", f"--patch={none}").returncode
    shorter = json.dumps({"spec": {"activeDeadlineSeconds": 1}})
    kube.insist("patch", "gpujob", "job", "--type=merge", f"--patch={shorter}")
    kube.wait_reason("job", "DeadlineExceeded")


@pytest.fixture
def guest(kube, others, judged, cohort):
    """Another namespace, which has borrowed all GPUs of the cluster; this one is promised four."""
    kube.submit(quota(limit(4)))
    found = others("guest")
    found.submit(quota(cohort=cohort))
    found.submit(judged.job("borrower", workers=2, gpus=8, seconds=300))
    found.wait_phase("borrower", "Running")
    return found


@pytest.mark.alone
def test_a_namespace_reclaims_its_quota_and_the_borrower_runs_again(kube, guest, judged):
    kube.submit(judged.job("owner", gpus=4, seconds=5))
    kube.wait_phase("owner", "Running", seconds=60)
    borrower = guest.gpujob("borrower")["status"]
    (attempt,) = borrower["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Preempted", "InCohortReclamation")
    assert "a job of another namespace" in attempt["message"]
    assert (borrower["preemptions"], borrower.get("restarts", 0)) == (1, 0)
    owner = kube.gpujob("owner")["status"]
    assert "preemption" not in owner
    assert "Preempting" in kube.events("owner")
    assert "Preempted" in guest.events("borrower")
    assert kube.namespace not in json.dumps(borrower)
    assert guest.namespace not in json.dumps(owner)
    kube.wait_phase("owner", "Succeeded")
    guest.wait_phase("borrower", "Running")
    assert guest.gpujob("borrower")["status"]["attempt"] == 2


@pytest.mark.slow
@pytest.mark.alone
def test_a_preemption_survives_the_loss_of_every_part(kube, guest, judged, system):
    """The recorded reservation is kept: no later job gets the GPUs of the preemptor."""
    kube.submit(judged.job("owner", gpus=4, seconds=5))
    wait_for(
        lambda: (
            "preemption" in kube.gpujob("owner").get("status", {})
            or kube.phase("owner") in {"Running", "Succeeded"}
        ),
        seconds=60,
        what="victims are recorded",
    )
    for part in ("scheduler", "operator"):
        system.insist(
            "delete",
            "pods",
            f"--selector=app.kubernetes.io/component={part}",
            "--grace-period=0",
            "--force",
        )
    guest.submit(judged.job("thief", gpus=8, seconds=60))
    kube.wait_phase("owner", "Succeeded", seconds=120)
    (attempt, *_) = guest.gpujob("borrower")["status"]["attempts"]
    assert attempt["outcome"] == "Preempted"


@pytest.mark.alone
def test_no_job_is_preempted_for_a_job_that_would_still_not_fit(kube, guest, judged):
    kube.submit(judged.job("owner", workers=3, gpus=8))
    kube.wait_reason("owner", "Unsatisfiable")
    assert guest.phase("borrower") == "Running"
    assert "preemption" not in kube.gpujob("owner")["status"]


@pytest.mark.alone
def test_a_job_of_higher_priority_takes_from_its_own_namespace(kube, judged, cohort):
    name = f"{kube.namespace}-high"
    kube.submit(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
            "preemptionPolicy": "Never",
        }
    )
    try:
        kube.submit(quota(cohort=cohort))
        kube.submit(judged.job("ordinary", workers=2, gpus=8, seconds=300))
        kube.wait_phase("ordinary", "Running")
        kube.submit(judged.job("urgent", gpus=8, seconds=1, priorityClassName=name))
        kube.wait_phase("urgent", "Succeeded")
        (attempt, *_) = kube.gpujob("ordinary")["status"]["attempts"]
        assert attempt["message"] == "stopped for GPUJob urgent, which has a higher priority"
    finally:
        kube.delete("priorityclass", name)
