# SPDX-License-Identifier: Apache-2.0
"""What a seed draws for the storm of the queue."""

import pytest
from manifests import Judged
from queue_storms import Meddling, QueueStorm, StormJob, drawn
from queue_tenants import A100, COHORTS, H100, QUOTAS, T4, max_gpus_of

THERE_ARE = {H100: 16, A100: 96, T4: 76}


def storm(seed):
    return drawn(Judged(locks="/locks", gpu_memory_mib=81559), jobs=500, servers=20, seed=seed)


def test_a_seed_draws_the_same_storm_and_another_seed_another():
    assert storm(1) == storm(1)
    assert storm(1).jobs != storm(2).jobs


@pytest.mark.parametrize("seed", range(5))
def test_no_gang_is_larger_than_its_quota_or_the_empty_cluster_allow(seed):
    for job in storm(seed).jobs:
        spec = job.manifest["spec"]
        gpus = spec["workers"] * spec.get("gpus", 1)
        assert 1 <= gpus <= max_gpus_of(job.tenant, tuple(spec["gpuModels"])), job.name


def test_a_storm_has_jobs_of_every_fate_in_every_namespace():
    jobs = storm(1).jobs
    assert {job.tenant for job in jobs} == set(QUOTAS)
    ends = {"gone" if job.end is None else f"{job.end.phase} {job.end.reason}" for job in jobs}
    assert ends == {
        "gone",
        "Succeeded Completed",
        "Succeeded FailuresIgnored",
        "Failed WorkerFailed",
        "Failed DeadlineExceeded",
    }


@pytest.mark.parametrize("model", THERE_ARE)
def test_the_quotas_of_a_storm_do_not_exceed_the_cluster(model):
    promised = [quota.gpus.get(model, (0, None))[0] for quota in QUOTAS.values() if quota]
    assert 0 < sum(promised) <= THERE_ARE[model]


def test_every_cohort_of_a_quota_exists_and_there_are_two_trees():
    assert {quota.cohort for quota in QUOTAS.values() if quota} == set(COHORTS)
    assert sum("parent" not in spec for spec in COHORTS.values()) == 2


class Kubectl:
    """Notes what is done; the job comes to be only when it was asked for a second time."""

    def __init__(self, *there):
        self.asked, self.done, self.there = 0, [], there

    def gpujobs(self):
        return [{"metadata": {"name": name}, "spec": spec} for name, spec in self.there]

    def insist(self, verb, *rest):
        if verb == "get":
            self.asked += 1
            return "gpujob/job" if self.asked > 1 else ""
        self.done.append((verb, rest[-1]))
        return ""


def test_a_job_is_suspended_before_it_is_resumed_though_it_is_not_there_at_first():
    job = StormJob("vision", {"metadata": {"name": "job"}}, acts=("suspend", "resume"))
    kubectl = Kubectl()
    meddling = Meddling(QueueStorm([job], []), {"vision": kubectl}, seed=1)
    meddling.finish()
    patches = [patch for _, patch in kubectl.done]
    assert patches == ['{"spec": {"suspend": true}}', '{"spec": {"suspend": false}}']
    assert meddling.done == 2


@pytest.mark.parametrize(
    ("acts", "there", "again"),
    [
        (("resume",), ("job", {"suspend": True}), [("patch", '{"spec": {"suspend": false}}')]),
        (("resume",), ("job", {}), []),
        (("delete",), ("job", {}), [("delete", "--ignore-not-found")]),
        (("delete",), ("another", {}), []),
    ],
    ids=["suspended again", "resumed", "made again", "gone"],
)
def test_an_act_that_a_repeated_apply_undid_is_repeated(acts, there, again):
    job = StormJob("vision", {"metadata": {"name": "job"}}, acts=acts)
    kubectl = Kubectl(there)
    Meddling(QueueStorm([job], []), {"vision": kubectl}, seed=1).finish()
    assert kubectl.done[1:] == again
