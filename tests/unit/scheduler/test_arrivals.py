# SPDX-License-Identifier: Apache-2.0

from extender_builders import pod


def weights(world):
    return {d.request.gpus: d.weight for d in world.ledger.learner.take_forecast().mix.demands}


def churn(world):
    return world.ledger.learner.take_forecast().churn


def test_a_pod_counts_once_however_often_it_is_seen(world):
    for _ in range(3):
        world.ledger.pods.upsert(pod("a", gpus=1))
    world.ledger.pods.upsert(pod("b", gpus=2))
    assert weights(world) == {1: 0.5, 2: 0.5}


def test_a_pod_that_asks_for_no_gpu_teaches_nothing(world):
    world.ledger.pods.upsert(pod("a", gpus=0))
    assert weights(world) == {}


def test_a_pod_that_is_gone_is_a_departure(world):
    world.ledger.pods.upsert(pod("a", gpus=1))
    world.ledger.pods.upsert(pod("b", gpus=1))
    world.ledger.pods.remove(pod("a", gpus=1))
    world.ledger.pods.remove(pod("a", gpus=1))
    assert churn(world) == 0.5


def test_a_pod_that_a_list_does_not_show_any_more_is_a_departure(world):
    world.ledger.pods.upsert(pod("a", gpus=1))
    world.ledger.pods.upsert(pod("b", gpus=1))
    world.ledger.pods.replace([pod("b", gpus=1)])
    assert churn(world) == 0.5
    assert weights(world) == {1: 1.0}
