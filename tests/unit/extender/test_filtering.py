# SPDX-License-Identifier: Apache-2.0
"""Given what the cluster holds, which node does a pod get?"""

import msgspec
import pytest
from extender_builders import World, gpu_node, job, node, owner, places, plan_request, pod, whole

from gpupack_crds.kinds import GpuQuota
from gpupack_scheduler.decisions import Mode
from gpupack_scheduler.errors import BindRefused

WORKER = {"worker": ("train", 1, 0)}


def test_a_planned_pod_gets_its_planned_node(world):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [2])]))
    assert world.filter(pod("p", **WORKER)).node_names == ["b"]


def test_a_planned_pod_gets_its_node_before_the_watch_shows_the_plan(world):
    planned = places(world.plan(plan_request("train")))[0].node
    assert world.filter(pod("p", **WORKER)).node_names == [planned]


def test_filter_says_that_the_node_of_a_planned_pod_was_filtered_out(world):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [2])]))
    result = world.filter(pod("p", **WORKER), nodes=["a"])
    assert result.failed_and_unresolvable_nodes == {
        "a": "the worker is planned on node b, which kube-scheduler's own filters exclude"
    }


def test_a_worker_of_an_unknown_job_is_asked_again_later(world):
    result = world.filter(pod("p", **WORKER))
    assert result.error == "attempt 1 of GPUJob team/train is not known yet"


def test_a_worker_of_a_job_that_no_later_list_shows_is_refused_for_good(world):
    invented = pod("p", **WORKER)
    world.ledger.pods.upsert(invented)
    assert world.filter(invented).error
    world.jobs_list.listed_at = world.now
    assert world.filter(invented).error
    world.jobs_list.listed_at = world.now + 1
    refused = world.filter(invented)
    assert not refused.error
    assert refused.failed_and_unresolvable_nodes == dict.fromkeys(
        "ab", "there is no attempt 1 of GPUJob team/train"
    )


def test_a_worker_whose_pod_the_watch_has_not_shown_is_asked_again_later(world):
    world.jobs_list.listed_at = world.now + 1
    assert world.filter(pod("p", **WORKER)).error


def test_gpujobs_are_listed_for_unknown_workers_but_not_all_the_time(world):
    world.jobs_list.listed_at = world.now - 10
    world.filter(pod("p", **WORKER))
    world.now += 60
    world.filter(pod("q", **WORKER))
    assert world.jobs_list.asked == [20.0, 0.0]


def test_the_first_call_of_a_pod_is_remembered_while_it_waits(world):
    waits = pod("p", **WORKER)
    world.ledger.pods.upsert(waits)
    world.now += 5
    world.ledger.pods.replace([waits])
    assert world.ledger.pods.seen_at("uid-p") == world.now - 5
    world.ledger.pods.remove(waits)
    assert world.ledger.pods.seen_at("uid-p") is None


def test_a_worker_of_an_ended_attempt_gets_no_node(world):
    world.ledger.jobs.upsert(job("train", attempt=2, phase="Admitted", placed=[("b", [2])]))
    result = world.filter(pod("p", **WORKER))
    assert set(result.failed_and_unresolvable_nodes.values()) == {
        "attempt 1 of GPUJob team/train is not admitted"
    }


def test_a_second_pod_of_a_worker_does_not_get_the_same_gpus(world):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Running", placed=[("b", [2])]))
    world.ledger.pods.upsert(pod("p", on="b", devices=whole("b", 2), **WORKER))
    result = world.filter(pod("q", **WORKER))
    assert set(result.failed_and_unresolvable_nodes.values()) == {
        "the worker's place is held by pod p"
    }


def test_a_planned_pod_waits_while_its_gpu_is_failed(world):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [2])]))
    world.ledger.gpus.upsert(gpu_node("b", failed=[2]))
    result = world.filter(pod("p", **WORKER))
    assert "GPU GPU-b-2 on node b failed" in result.failed_and_unresolvable_nodes["b"]


@pytest.mark.parametrize(
    "stranger",
    [
        pod("p", **WORKER, namespace="other"),
        pod("p", **WORKER, ownerReferences=[]),
        pod("p", **WORKER, ownerReferences=[owner("train-1", controller=False)]),
        pod("p", **WORKER, ownerReferences=[owner("train-1", kind="ReplicaSet")]),
        pod("p", **WORKER, ownerReferences=[owner("train-1", apiVersion="example.org/v1")]),
        pod("p", **WORKER, ownerReferences=[owner("other-1")]),
        pod("p", worker=("train", 1, 0, "uid-of-the-job-deleted-before")),
    ],
)
def test_labels_alone_do_not_claim_the_gpus_of_a_worker(world, stranger):
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=[("b", [2])]))
    world.filter(stranger)
    claims = world.ledger.claims.pods.values()
    assert not any(whole("b", 2)[0].uuid in str(claim.placement) for claim in claims)


def test_a_standalone_pod_gets_one_node_and_its_gpus_are_assumed(world):
    assert len(world.filter(pod("p")).node_names) == 1
    assert world.states() == ["assumed"]


def test_a_repeated_call_gets_the_same_node_and_renews_the_assumption(world):
    first = world.filter(pod("p")).node_names
    world.now += 20
    assert world.filter(pod("p")).node_names == first
    world.now += 20
    world.ledger.expire()
    assert world.states() == ["assumed"]


def test_a_repeated_call_without_its_node_is_decided_again(world):
    (first,) = world.filter(pod("p")).node_names
    (other,) = {"a", "b"} - {first}
    assert world.filter(pod("p"), nodes=[other]).node_names == [other]
    assert world.free(first) == [0, 1, 2, 3]


def test_assumed_gpus_are_free_after_the_deadline(world):
    world.filter(pod("p", gpus=4), nodes=["a"])
    world.now += 31
    assert world.filter(pod("q", gpus=4), nodes=["a"]).node_names == ["a"]


def test_a_full_node_fails_in_a_way_that_evicting_could_help(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0, 1, 2, 3), gpus=4))
    assert world.filter(pod("q"), nodes=["a"]).failed_nodes == {"a": "fewer than 1 free GPU"}


def test_a_small_node_fails_in_a_way_that_evicting_cannot_help(world):
    result = world.filter(pod("q", gpus=5), nodes=["a"])
    text = "fewer than 5 GPUs that match; would fit with 1 GPU less"
    assert result.failed_and_unresolvable_nodes == {"a": text}


def test_a_node_without_inventory_is_named(world):
    world.ledger.nodes.upsert(node("c"))
    result = world.filter(pod("p"), nodes=["c"])
    assert result.failed_and_unresolvable_nodes == {"c": "no inventory from a gpupack agent"}


def test_a_node_whose_kubelet_has_no_device_tokens_gets_no_work(world):
    world.ledger.nodes.upsert(node("a", tickets=0))
    result = world.filter(pod("p"), nodes=["a"])
    assert result.failed_and_unresolvable_nodes == {"a": "node is not ready"}


def test_texts_are_the_same_for_the_same_state(world):
    answers = {str(world.filter(pod("p", gpus=9))) for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize("asked", [{"gpus": 9}, {"gpus": 2}, {"cpu": "900"}])
def test_texts_do_not_change_with_nodes_that_are_not_asked_about(asked):
    world = World(mode=Mode.ADVISORY)
    world.add_node("a")
    world.ledger.pods.upsert(pod("p", gpus=3, on="a", devices=whole("a", 0, 1, 2)))
    before = texts(world, pod("q", **asked))
    world.add_node("b", gpus=2)
    world.ledger.pods.upsert(pod("r", on="b", devices=whole("b", 0)))
    assert texts(world, pod("q", **asked)) == before


def texts(world, asking):
    with pytest.raises(BindRefused) as refused:
        world.reserve(asking, "a")
    return str(world.filter(asking, nodes=["a"])), str(refused.value)


def test_cpu_of_other_pods_counts(world):
    world.ledger.pods.upsert(pod("web", gpus=0, cpu="31500m", on="a"))
    result = world.filter(pod("p", cpu="1"), nodes=["a"])
    text = "fewer than 1000 milli-CPU free; would fit with 500 milli-CPU less"
    assert result.failed_nodes == {"a": text}


def test_the_refusal_names_the_smallest_shortage_of_the_nodes(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0, 1), gpus=2))
    world.ledger.pods.upsert(pod("q", on="b", devices=whole("b", 0, 1, 2), gpus=3))
    assert world.filter(pod("r", gpus=4)).failed_nodes == {
        "a": "fewer than 4 free GPUs; would fit with 2 GPUs less",
        "b": "fewer than 4 free GPUs",
    }


def test_the_nearest_miss_is_the_same_as_that_of_a_job(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0, 1), gpus=2))
    world.ledger.pods.upsert(pod("q", on="b", devices=whole("b", 0, 1, 2), gpus=3))
    with pytest.raises(BindRefused, match="1 node would fit with 2 GPUs less"):
        world.reserve(pod("r", gpus=4), "a")


def test_advisory_mode_passes_every_node_that_fits():
    world = World(mode=Mode.ADVISORY)
    for name, gpus in (("a", 4), ("b", 4), ("c", 1)):
        world.add_node(name, gpus=gpus)
    assert world.filter(pod("p", gpus=2), nodes=["a", "b", "c"]).node_names == ["a", "b"]
    assert world.states() == []


def test_advisory_mode_ranks_by_policy():
    world = World(mode=Mode.ADVISORY)
    world.add_node("a")
    world.add_node("b")
    world.ledger.pods.upsert(pod("p", on="b", devices=whole("b", 0)))
    scores = world.prioritize(pod("q"))
    assert scores["b"] == 10
    assert scores["a"] < 10


def test_a_pod_that_cannot_be_served_is_refused_on_every_node_and_not_asked_about_again(world):
    answer = world.filter(pod("p", gpus=0))
    assert answer.error == ""
    assert answer.failed_and_unresolvable_nodes == dict.fromkeys(
        ["a", "b"],
        "pod p: 0 of its containers and sidecars ask for GPUs, and 0 of its plain init containers; "
        "at least one container or sidecar must, and no plain init container may",
    )


def test_a_standalone_pod_counts_against_the_quota_of_its_namespace(world):
    limited(world, nominal=1)
    world.bind(pod("first"), "a")
    refused = world.filter(pod("second"))
    text = refused.failed_and_unresolvable_nodes["a"]
    assert text.startswith("borrowing limit of namespace team reached: 1 GPU requested")
    assert "position" not in text
    assert world.filter(pod("other", namespace="other")).node_names


def test_bind_refuses_gpus_beyond_the_quota(world):
    limited(world, nominal=0)
    with pytest.raises(BindRefused, match="namespace team may use at most 0 GPUs"):
        world.reserve(pod("p"), "a")


def limited(world, *, nominal):
    limits = {"model": "*", "nominal": nominal, "borrowingLimit": 0}
    meta = {"name": "default", "namespace": "team", "uid": "q", "resourceVersion": "1"}
    shown = {"metadata": meta, "spec": {"gpus": [limits]}}
    world.quotas.quotas.upsert(msgspec.convert(shown, GpuQuota))


def test_a_small_pod_takes_no_gpus_reserved_for_a_gang(world):
    """However often it asks: the gang has waited for longer than others may go before it."""
    world.asks("holder", gpus=4, seconds_left=3600.0)
    world.written("holder")
    world.asks("gang", workers=2, gpus=4)
    world.now += 301
    world.decide()
    texts = world.filter(pod("small")).failed_and_unresolvable_nodes
    assert set(texts.values()) == {
        "blocked by the reservation of gang",
    }
