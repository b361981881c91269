# SPDX-License-Identifier: Apache-2.0
"""What is drawn for a mixed cluster is what was described, and fits it."""

from collections import Counter
from dataclasses import replace

import pytest
from simulator_builders import node

from gpupack_placement import MiB, Request
from gpupack_simulator import InvalidParameter
from gpupack_simulator.mixed import MixedStyle, WeightedRequest, chances, mixed_pods

NODES = (node("t4", 4, model="T4", gpu_memory=16_384), node("a100", 8, model="A100"))
ANY, ONE = WeightedRequest(Request(gpus=0), 3), WeightedRequest(Request(gpus=1), 4)
STYLE = MixedStyle(
    nodes=NODES,
    sizes=(ONE, WeightedRequest(Request(gpus=8), 1)),
    wishes=(ANY, WeightedRequest(Request(gpus=0, models=("T4",)), 1)),
    pods=20_000,
)


def test_one_seed_gives_one_list_of_pods():
    assert mixed_pods(STYLE) == mixed_pods(STYLE)
    assert mixed_pods(STYLE) != mixed_pods(replace(STYLE, seed=1))


def test_the_probability_of_a_request_is_that_of_its_size_and_its_model():
    # 12, 4 and 3 of 19: eight T4 are on no node
    assert chances(STYLE) == {
        Request(gpus=1): pytest.approx(12 / 19),
        Request(gpus=1, models=("T4",)): pytest.approx(4 / 19),
        Request(gpus=8): pytest.approx(3 / 19),
    }


def test_pods_come_as_often_as_their_chance():
    counts = Counter(pod.request for pod in mixed_pods(STYLE))
    for request, chance in chances(STYLE).items():
        assert counts[request] / STYLE.pods == pytest.approx(chance, abs=0.01)


def test_memory_requests_are_limited_to_gpus_that_have_it():
    wish = WeightedRequest(Request(gpus=0, min_memory=MiB(40_000)), 1)
    (request,) = chances(replace(STYLE, sizes=(ONE,), wishes=(wish,)))
    assert request == Request(gpus=1, min_memory=MiB(40_000))
    with pytest.raises(InvalidParameter, match="no size with any wish fits"):
        mixed_pods(replace(STYLE, nodes=NODES[:1], wishes=(wish,)))


@pytest.mark.parametrize(
    "wrong", [{"pods": 0}, {"pods": 10**7}, {"sizes": ()}, {"sizes": (ONE,) * 5000}], ids=str
)
def test_parameters_that_draw_no_pods_or_too_many_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        replace(STYLE, **wrong)


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_a_weight_is_above_nothing_and_has_an_end(weight):
    with pytest.raises(InvalidParameter, match="use more than 0"):
        WeightedRequest(Request(gpus=1), weight)
