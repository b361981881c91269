# SPDX-License-Identifier: Apache-2.0
"""The claims that follow from pods, GPUJobs and GPUNodes."""

import msgspec
import pytest
from accounts import bound_pod, gpu_job, moment
from extender_builders import OBSERVED, gpu_node, observed_node, part, whole

from gpupack_cost import Group
from gpupack_kubeclient import objects
from gpupack_scheduler.limits import MAX_GPUS


def test_a_pod_holds_its_gpus_from_its_binding_to_the_end_of_its_container(accounts):
    accounts.time = 100
    accounts.show("pods", bound_pod("one", gpus=2, bound=100))
    accounts.at(250)
    assert accounts.seconds() == {"Pod/one": 300}
    accounts.time = 290
    accounts.show("pods", bound_pod("one", gpus=2, bound=100, ended=280))
    accounts.at(9000)
    assert accounts.seconds() == {"Pod/one": 360}


def test_a_pending_pod_holds_no_gpu(accounts):
    waiting = bound_pod("one", on="", devices=whole("a", 0))
    accounts.show("pods", waiting)
    accounts.at(500)
    assert accounts.seconds() == {}


def test_a_share_counts_by_the_larger_of_its_percent_and_its_memory(accounts):
    devices = part("a", 0, percent=10, memory_mib=81559 // 2)
    accounts.show("pods", bound_pod("half", devices=devices, bound=0))
    accounts.show("pods", bound_pod("third", devices=part("a", 1, percent=30), bound=0))
    accounts.at(1000)
    assert accounts.seconds() == {"Pod/half": 500, "Pod/third": 300}


def test_slices_of_a_gpu_count_by_their_part_of_its_memory(accounts):
    node = gpu_node("a")
    gpu = node.status.devices[0]
    cut = [
        msgspec.structs.replace(
            gpu,
            uuid=f"MIG-{size}",
            index=10 + size,
            mig_parent=gpu.uuid,
            mig_profile=profile,
            memory_mib=size * 10_000,
        )
        for size, profile in ((1, "1g.10gb"), (3, "3g.30gb"))
    ]
    devices = (*node.status.devices, *cut)
    status = msgspec.structs.replace(node.status, devices=devices)
    accounts.show("gpus", msgspec.structs.replace(node, status=status))
    held = msgspec.structs.replace(whole("a", 0)[0], uuid="MIG-3", memory_mib=30_000)
    accounts.show("pods", bound_pod("slice", devices=(held,), bound=0))
    accounts.at(100)
    assert accounts.seconds() == {"Pod/slice": 75}


def test_a_pod_on_an_observed_node_counts_gpus_of_the_nodes_model(accounts):
    accounts.show("nodes", observed_node("c", gpus=4))
    accounts.show("gpus", gpu_node("c", gpus=4, mode="observed", resource=OBSERVED))
    pod = bound_pod("theirs", on="c", devices=(), asking={OBSERVED: "3"}, bound=0)
    accounts.show("pods", pod)
    accounts.at(10)
    assert accounts.seconds(Group.MODEL) == {"NVIDIA H100 80GB HBM3": 30}


@pytest.mark.parametrize("number", [10**9, 2**62])
def test_a_request_for_too_many_gpus_counts_the_maximum_of_a_node(accounts, number):
    pod = bound_pod("vast", devices=(), asking={OBSERVED: str(number)}, bound=0)
    accounts.tracker.update_pod(pod)
    accounts.tracker.replace_pods([pod])
    (claim,) = accounts.tracker.open_claims()
    assert len(claim.held) == MAX_GPUS


def test_a_pod_with_too_large_an_attempt_number_is_counted_as_a_pod(accounts):
    number = 10**20
    accounts.show("pods", bound_pod("liar", worker=("gang", number, 0), bound=0))
    accounts.at(10)
    assert set(accounts.tracker.claims) == {"pod/uid-liar"}
    accounts.restart()
    assert set(accounts.tracker.claims) == {"pod/uid-liar"}


def test_a_model_that_becomes_known_counts_from_the_start(accounts):
    accounts.show("pods", bound_pod("early", on="c", devices=whole("c", 0), bound=0))
    accounts.at(8000)
    assert accounts.seconds(Group.MODEL) == {"": 8000}
    accounts.show("nodes", observed_node("c"))
    accounts.show("gpus", gpu_node("c"))
    accounts.at(8001)
    assert accounts.seconds(Group.MODEL) == {"NVIDIA H100 80GB HBM3": 8001}


def test_pods_of_a_deployment_count_under_their_controller(accounts):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8", "controller": True}
    for number in range(2):
        devices = whole("a", number)
        pod = bound_pod(f"web-{number}", devices=devices, ownerReferences=[owner])
        accounts.show("pods", pod)
    accounts.at(10)
    assert accounts.seconds() == {"ReplicaSet/web-5d8": 20}


PLACED = (("a", whole("a", 0)), ("b", whole("b", 0)))


def worker(index, **times):
    node, devices = PLACED[index]
    return bound_pod(f"gang-{index}", on=node, devices=devices, worker=("gang", 1, index), **times)


def test_a_gang_holds_its_places_from_its_admission_until_the_attempt_has_ended(accounts):
    accounts.time = 10
    accounts.show("jobs", gpu_job("gang", attempts=[(10, None)], placed=PLACED))
    accounts.time = 14
    accounts.show("pods", worker(0, bound=12))
    accounts.show("pods", worker(1, bound=13))
    accounts.time = 100
    accounts.show("pods", worker(0, bound=12, ended=60))
    accounts.show("pods", worker(1, bound=13, ended=98))
    done = gpu_job("gang", attempts=[(10, 100)], placed=PLACED, phase="Succeeded")
    accounts.show("jobs", done)
    accounts.at(5000)
    assert accounts.seconds() == {"gang": 180}


def test_an_attempt_that_ended_without_an_operator_counts_until_its_workers_ended(accounts):
    accounts.time = 10
    accounts.show("jobs", gpu_job("gang", attempts=[(10, None)], placed=PLACED))
    accounts.at(4000)
    done = gpu_job("gang", attempts=[(10, 9000, 60)], placed=PLACED, phase="Succeeded")
    accounts.time = 9000
    accounts.show("jobs", done)
    accounts.at(9100)
    assert accounts.seconds() == {"gang": 2 * 50}


def test_the_order_of_pod_and_job_events_does_not_matter(accounts):
    accounts.time = 14
    accounts.show("pods", worker(1, bound=13))
    accounts.show("jobs", gpu_job("gang", attempts=[(10, None)], placed=PLACED))
    accounts.show("pods", worker(0, bound=12))
    accounts.at(110)
    assert accounts.seconds() == {"gang": 200}


TOGETHER = {"shares_pods": True}
"""Both workers are in one pod, on one node."""


@pytest.mark.parametrize("pod_is_first", [False, True])
def test_workers_that_share_a_pod_count_once(accounts, pod_is_first):
    places = [("a", whole("a", number)) for number in range(2)]
    accounts.time = 10
    job = gpu_job("gang", attempts=[(10, None)], placed=places, **TOGETHER)
    shown = [("jobs", job), ("pods", bound_pod("p", gpus=2, worker=("gang", 1, 0), bound=12))]
    for kind, item in reversed(shown) if pod_is_first else shown:
        accounts.show(kind, item)
    accounts.at(110)
    assert accounts.seconds() == {"gang": 200}
    assert len(list(accounts.tracker.open_claims())) == 1


def test_the_workers_of_a_pod_whose_admission_was_not_seen_are_not_counted_again(accounts):
    accounts.time = 110
    accounts.show("pods", bound_pod("p", gpus=2, worker=("gang", 1, 0), bound=12, ended=100))
    done = gpu_job("gang", attempts=[(12, 100)], phase="Succeeded", spec={"workers": 2}, **TOGETHER)
    accounts.show("jobs", done)
    accounts.at(1000)
    assert accounts.seconds() == {"gang": 2 * 88}


def test_an_attempt_that_was_not_seen_counts_the_gpus_of_each_role(accounts):
    roles = [
        {"name": "leader", "share": {"percent": 40, "memory": "8Gi"}},
        {"name": "worker", "workers": 2, "gpus": 3},
    ]
    accounts.time = 110
    done = gpu_job("gang", attempts=[(0, 100)], phase="Succeeded", spec={"roles": roles})
    accounts.show("jobs", done)
    accounts.at(1000)
    assert accounts.seconds() == {"gang": 640}


def test_a_worker_that_was_not_seen_counts_the_gpus_of_its_own_role(accounts):
    roles = [{"name": "leader", "gpus": 1}, {"name": "worker", "gpus": 3}]
    accounts.time = 110
    leader = bound_pod("p", gpus=1, worker=("gang", 1, 0), bound=0, ended=100)
    accounts.show("pods", leader)
    done = gpu_job("gang", attempts=[(0, 100)], phase="Succeeded", spec={"roles": roles})
    accounts.show("jobs", done)
    accounts.at(1000)
    assert accounts.seconds() == {"gang": 400}


def test_a_preempted_attempt_counts_until_its_pods_have_ended(accounts):
    accounts.show("jobs", gpu_job("gang", attempts=[(0, None)], placed=PLACED[:1]))
    accounts.show("pods", worker(0, bound=1))
    accounts.time = 50
    accounts.show("jobs", gpu_job("gang", attempts=[(0, 50)], phase="Pending"))
    accounts.time = 85
    accounts.show("pods", worker(0, bound=1, ended=80))
    accounts.delete("pods", worker(0, bound=1, ended=80))
    accounts.at(200)
    accounts.show("jobs", gpu_job("gang", attempts=[(0, 50), (190, None)], placed=PLACED[:1]))
    accounts.at(220)
    assert accounts.seconds() == {"gang": 80 + 30}


def test_extra_workers_count_while_their_pods_exist(accounts):
    spec = {"workers": 2, "minWorkers": 1}
    accounts.show("jobs", gpu_job("gang", attempts=[(0, None)], placed=PLACED, spec=spec))
    accounts.at(100)
    assert accounts.seconds() == {"gang": 100}
    accounts.show("pods", worker(1, bound=100))
    accounts.at(130)
    accounts.show("pods", worker(1, bound=100, ended=120))
    accounts.at(200)
    assert accounts.seconds() == {"gang": 200 + 20}


def test_a_pod_with_a_workers_labels_is_counted_separately(accounts):
    accounts.show("jobs", gpu_job("gang", attempts=[(0, None)], placed=PLACED[:1]))
    accounts.show("pods", worker(0, bound=0))
    for number in (1, 2):
        devices = whole("a", number)
        liar = bound_pod(f"liar-{number}", devices=devices, worker=("gang", 1, 0), bound=0)
        accounts.show("pods", liar)
    accounts.at(100)
    assert sum(accounts.seconds().values()) == 300


def test_a_pod_with_a_workers_labels_seen_before_the_job_is_counted_separately(accounts):
    liar = bound_pod("liar", devices=whole("a", 1), worker=("gang", 1, 0), bound=0)
    accounts.show("pods", liar)
    accounts.at(7500)
    accounts.show("jobs", gpu_job("gang", attempts=[(0, None)], placed=PLACED[:1]))
    accounts.show("pods", worker(0, bound=0))
    accounts.at(8000)
    assert sum(accounts.seconds().values()) == 16000


def test_a_removed_pod_without_an_end_time_ended_when_its_removal_was_seen(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.time = 77
    accounts.delete("pods", bound_pod("one", bound=0))
    accounts.at(1000)
    assert accounts.seconds() == {"Pod/one": 77}


def test_a_pod_on_a_lost_node_holds_gpus_until_the_api_server_removes_it(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.time = 300
    lost = bound_pod("one", bound=0, ended=300, phase="Failed", running=True)
    accounts.show("pods", lost)
    accounts.at(400)
    assert accounts.seconds() == {"Pod/one": 400}
    accounts.delete("pods", lost)
    accounts.at(1000)
    assert accounts.seconds() == {"Pod/one": 400}


def test_a_terminating_pod_holds_gpus_while_the_agent_lists_it(accounts):
    accounts.show("pods", bound_pod("ghost", bound=0))
    accounts.time = 50
    accounts.delete("pods", bound_pod("ghost", bound=0))
    accounts.time = 55
    accounts.show("gpus", gpu_node("a", lingering={"ghost": whole("a", 0)}))
    accounts.at(150)
    assert accounts.seconds() == {"Pod/ghost": 150}
    accounts.show("gpus", gpu_node("a"))
    accounts.at(500)
    assert accounts.seconds() == {"Pod/ghost": 150}


def test_a_clock_that_is_ahead_gives_no_end_in_the_future(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.time = 60
    accounts.show("pods", bound_pod("one", bound=0, ended=4000))
    accounts.at(10_000)
    accounts.show("pods", bound_pod("one", bound=0, ended=4000))
    assert accounts.seconds() == {"Pod/one": 60}


def test_a_clock_that_is_behind_gives_no_negative_usage(accounts):
    accounts.time = 500
    accounts.show("pods", bound_pod("one", bound=500))
    accounts.show("pods", bound_pod("one", bound=500, ended=100))
    accounts.at(600)
    assert accounts.seconds() == {}


def test_a_clock_that_is_set_back_does_not_change_usage(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.at(7300)
    accounts.at(100)
    accounts.at(7400)
    assert accounts.seconds() == {"Pod/one": 7400}


def test_a_pod_rejected_by_the_kubelet_held_gpus_until_its_rejection(accounts):
    refused = bound_pod("one", bound=0, phase="Failed", ended=1)
    said = objects.Condition(type="Ready", status="False", last_transition_time=moment(20))
    conditions = (*refused.status.conditions, said)
    status = msgspec.structs.replace(refused.status, container_statuses=(), conditions=conditions)
    accounts.time = 30
    accounts.show("pods", msgspec.structs.replace(refused, status=status))
    accounts.at(90)
    assert accounts.seconds() == {"Pod/one": 20}


def test_burn_ins_are_billed_to_their_own_namespace(accounts):
    quarantine = [{"gpu": whole("a", 0)[0].uuid, "phase": "Acceptance"}]
    accounts.show("gpus", gpu_node("a", quarantine=quarantine))
    burn_in = gpu_job(
        "burn-in", attempts=[(0, None)], placed=PLACED[:1], namespace="gpupack-acceptance"
    )
    accounts.show("jobs", burn_in)
    accounts.at(60)
    assert accounts.seconds(Group.NAMESPACE) == {"gpupack-acceptance": 60}
    assert accounts.seconds(Group.MODEL) == {"NVIDIA H100 80GB HBM3": 60}


def test_usage_counts_for_the_cohort_at_its_start(accounts):
    accounts.cohorts["team"] = "research"
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.cohorts["team"] = "sales"
    accounts.show("pods", bound_pod("two", devices=whole("a", 1), bound=0))
    accounts.at(10)
    assert accounts.seconds(Group.COHORT) == {"research": 10, "sales": 10}


@pytest.mark.parametrize(
    "owner",
    [
        {"kind": "Deployment\r\nSet-Cookie: x", "name": "one"},
        {"kind": "K" * 100_000, "name": "one"},
        {"kind": "ReplicaSet", "name": "größer"},
    ],
)
def test_an_invalid_owner_reference_is_not_named(accounts, owner):
    made = bound_pod("one", bound=0)
    reference = objects.OwnerReference(**owner, controller=True)
    meta = msgspec.structs.replace(made.metadata, owner_references=(reference,))
    accounts.show("pods", msgspec.structs.replace(made, metadata=meta))
    accounts.at(10)
    assert accounts.seconds() == {"Pod/one": 10}
