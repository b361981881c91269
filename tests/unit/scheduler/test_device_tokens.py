# SPDX-License-Identifier: Apache-2.0
"""Device tokens of pods that the kubelet counts and that gpupack did not bind."""

import msgspec
import pytest
from extender_builders import gpu_node, job, pod, whole

from gpupack_kubeclient import objects


def test_gpus_of_a_pod_that_another_scheduler_bound_are_not_given_out(world, caplog):
    for _ in range(2):
        world.ledger.pods.upsert(pod("p", gpus=3, on="a"))
    assert world.free("a") == [0]
    assert caplog.text.count("pod team/p holds 3 of the kubelet's gpupack.dev/gpu") == 1


@pytest.mark.parametrize("annotation", ["[{]", "[]"])
def test_a_forged_annotation_hides_no_device_token(world, annotation):
    forged = {"annotations": {"gpupack.dev/devices": annotation}}
    world.ledger.pods.upsert(pod("p", gpus=2, on="a", **forged))
    assert world.free("a") == [0, 1]


def test_device_tokens_are_free_when_the_pod_has_ended(world):
    world.ledger.pods.upsert(pod("p", gpus=3, on="a"))
    world.ledger.pods.upsert(pod("p", gpus=3, on="a", phase="Failed"))
    assert world.free("a") == [0, 1, 2, 3]


def test_device_tokens_are_free_when_a_list_does_not_show_the_pod(world):
    world.ledger.pods.upsert(pod("p", gpus=3, on="a"))
    world.ledger.pods.replace([])
    assert world.free("a") == [0, 1, 2, 3]


def test_device_tokens_give_way_to_a_gpu_that_an_annotation_names(world):
    world.ledger.pods.replace(
        [pod("p", gpus=2, on="a"), pod("q", gpus=2, on="a", devices=whole("a", 2, 3))]
    )
    assert world.free("a") == []
    assert world.ledger.claims.contradictions == 0


def test_device_tokens_take_the_gpus_of_an_expired_plan(world):
    placed = [("a", [0]), ("a", [1]), ("a", [2]), ("a", [3])]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=placed))
    world.ledger.pods.upsert(pod("p", gpus=1, on="a"))
    world.ledger.jobs.upsert(job("train", attempt=1))
    assert world.free("a") == [0, 1, 2]


def test_device_tokens_are_counted_on_a_node_that_appears_later(world):
    world.ledger.pods.upsert(pod("p", gpus=1, on="c"))
    world.add_node("c")
    assert world.free("c") == [0, 1, 2]
    world.ledger.gpus.upsert(gpu_node("c", gpus=2))
    assert world.free("c") == [0]


def test_a_container_that_starts_first_needs_no_more_than_those_that_run(world):
    built = pod("p", gpus=1, on="a")
    starting = objects.Container(name="s", resources=built.spec.containers[0].resources)
    spec = msgspec.structs.replace(built.spec, init_containers=(starting,))
    world.ledger.pods.upsert(msgspec.structs.replace(built, spec=spec))
    assert world.free("a") == [0, 1, 2]
