# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_operator.decision.container_ends import EndedByItself, Interrupted, UnknownEnd
from gpupack_operator.decision.workers import Worker

EVICTED = "EvictionByEvictionAPI"
BY_KUBELET = "TerminationByKubelet"


@pytest.fixture
def end(build):
    """How the worker of a pod that exited 0 ended, which is second 20 unless it says otherwise."""

    def of(**pod):
        done = {"phase": "Succeeded", "exit_code": 0, "ended": 20, "container_reason": "Completed"}
        return Worker(build.pod(**{**done, **pod})).end

    return of


def test_a_worker_without_a_request_to_end_ended_by_itself(end):
    assert end() == EndedByItself()


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"deleted": 18}, "PodDeleted"),
        ({"deleted": 18, "disrupted": (18, EVICTED)}, EVICTED),
        ({"deleted": 18, "disrupted": (17, "DeletionByTaintManager")}, "DeletionByTaintManager"),
        ({"deleted": 18, "disrupted": (17, "PreemptionByScheduler")}, "PreemptionByScheduler"),
        ({"disrupted": (18, BY_KUBELET)}, BY_KUBELET),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed", "reason": "NodeShutdown", "disrupted": (18, BY_KUBELET)}, BY_KUBELET),
    ],
)
def test_a_worker_that_ended_after_a_request_was_interrupted(end, pod, reason):
    found = end(**pod)
    assert isinstance(found, Interrupted)
    assert found.by.reason == reason


@pytest.mark.parametrize("requested", [20, 21])
def test_an_end_within_a_second_of_the_request_counts_as_interrupted(end, requested):
    assert isinstance(end(deleted=requested), Interrupted)


@pytest.mark.parametrize(
    "pod",
    [
        {"deleted": 22},
        {"deleted": 22, "disrupted": (22, EVICTED)},
        {"deleted": 90, "disrupted": (10, EVICTED)},
    ],
    ids=["deleted", "evicted", "evicted in vain and deleted later"],
)
def test_a_request_after_the_end_changes_nothing(end, pod):
    assert end(**pod) == EndedByItself()


def test_an_eviction_without_a_deletion_is_no_request_to_end(end):
    assert end(disrupted=(18, EVICTED)) == EndedByItself()


def test_a_pod_ended_by_its_kubelet_stays_interrupted_when_it_is_deleted_later(end):
    assert isinstance(end(disrupted=(18, BY_KUBELET), deleted=90), Interrupted)


@pytest.mark.parametrize("reason", ["ContainerStatusUnknown", "Unknown"])
def test_an_end_that_the_kubelet_did_not_see_is_unknown(end, reason):
    assert end(phase="Failed", exit_code=137, container_reason=reason) == UnknownEnd()


def test_an_end_without_a_time_is_unknown_if_the_pod_was_deleted(build):
    pod = build.pod(phase="Succeeded", deleted=18)
    assert Worker(pod).end == UnknownEnd()
    assert not Worker(pod).succeeded


def test_the_time_of_the_request_does_not_change_when_the_grace_period_is_shortened(build):
    pod = build.pod(phase="Succeeded", exit_code=0, ended=20, deleted=18)
    done = structs.replace(
        pod.metadata, deletion_timestamp=build.at(18), deletion_grace_period_seconds=0
    )
    assert isinstance(Worker(structs.replace(pod, metadata=done)).end, Interrupted)
