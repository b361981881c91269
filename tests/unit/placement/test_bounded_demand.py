# SPDX-License-Identifier: Apache-2.0
"""Whatever pods ask for, what is learned from them takes bounded memory."""

import resource
import subprocess
import sys

import numpy as np
import pytest
from placement_builders import node

from gpupack_placement import (
    Cluster,
    DemandLearner,
    Request,
    RequestMix,
    Share,
    decide,
    policy_named,
)
from gpupack_placement.fragmentation import CPU_FIGURES, Fragmentation
from gpupack_placement.learner import FADE_ARRIVALS, KINDS_AFTER_FADE, MAX_KINDS

MIB = 1 << 20
LIMIT_MIB = 1024
"""Of address space, which numpy and the solver map 300 MiB of for themselves."""

DECIDE = """
import sys
from gpupack_placement import Cluster, Device, DemandLearner, Node, Request, decide, policy_named
learner = DemandLearner()
for number in range(170):
    learner.record_arrival(Request(gpus=1 << 20, cpu=1000 + number))
devices = tuple(Device(f"GPU-{i}", i, "H100", 81920) for i in range(8))
cluster = Cluster([Node("a", devices, cpu=64000, memory=1 << 20)])
policy = policy_named(sys.argv[1]).informed(learner.take_forecast())
print(decide(cluster, Request(gpus=1, cpu=1000), policy).node)
"""


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_MIB * MIB, LIMIT_MIB * MIB))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("policy", ["bid-price", "fgd"])
def test_pods_with_a_million_gpus_and_different_cpu_do_not_exhaust_memory(policy):
    done = subprocess.run(
        [sys.executable, "-c", DECIDE, policy],
        preexec_fn=limit_memory,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.stdout, done.returncode) == ("a\n", 0), done.stderr[-500:]


def test_the_learner_forgets_rare_kinds_long_before_the_horizon():
    learner = DemandLearner()
    for number in range(FADE_ARRIVALS // 2):
        learner.record_arrival(Request(gpus=1, cpu=1 + number) if number % 2 else Request(gpus=1))
    mix = learner.take_forecast().mix
    assert KINDS_AFTER_FADE <= len(mix.demands) <= MAX_KINDS
    assert mix.demands[0].request == Request(gpus=1)


def many_figures(number):
    common = Request(share=Share(500, 0), cpu=5555)
    rare = [Request(share=Share(300, 0), cpu=1000 + n) for n in range(number)]
    return RequestMix.of([(common, number), *((request, 1) for request in rare)])


def test_cpu_figures_beyond_the_limit_take_no_more_memory():
    few, many = (Fragmentation(many_figures(n)) for n in (CPU_FIGURES - 1, 10 * CPU_FIGURES))
    free = np.array([0, 4000, 5555, 1 << 40])
    assert few.levels(free).max() == CPU_FIGURES
    assert many.levels(free).max() == CPU_FIGURES


def test_the_figures_that_weigh_most_and_the_largest_stay_exact():
    measure = Fragmentation(many_figures(10 * CPU_FIGURES))
    levels = measure.levels(np.array([5554, 5555])).tolist()
    assert levels[1] == levels[0] + 1
    largest = 1000 + 10 * CPU_FIGURES - 1
    assert measure.levels(np.array([max(largest, 5555) - 1])) == CPU_FIGURES - 1


def test_a_demand_for_more_gpus_than_any_node_has_finds_nothing_useful():
    there = Cluster([node("a")])
    measure = Fragmentation(RequestMix.of([(Request(gpus=1 << 20), 1)]))
    assert measure.useful(there.arrays).tolist() == [0]
    assert decide(there, Request(gpus=1), policy_named("fgd")).node == "a"
