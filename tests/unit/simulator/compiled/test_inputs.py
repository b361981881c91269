# SPDX-License-Identifier: Apache-2.0
"""What the compiled loop was not written for goes to the engine."""

from dataclasses import replace

import pytest
from simulator_builders import job, node

from gpupack_placement import Interconnect, MiB, Share, Spread, Taint, policy_named
from gpupack_placement.model import Effect
from gpupack_simulator import Breakdown, Component, Sampling, Settings
from gpupack_simulator.compiled.inputs import is_supported

NODE, JOB = node("a"), job("a")
SETTINGS = Settings(discipline="drop", occupancy=False, sampling=Sampling(every=1.0), until=9.0)


def asking(**asked):
    return replace(JOB, request=replace(JOB.request, **asked))


def with_first_device(**what):
    first, *others = NODE.devices
    return replace(NODE, devices=(replace(first, **what), *others))


def can(nodes=(NODE,), jobs=(JOB,), policy="default", **settings):
    return is_supported(nodes, jobs, policy_named(policy), replace(SETTINGS, **settings))


def test_a_plain_replay_is_compiled():
    assert all(can(policy=policy) for policy in ("best-fit", "fgd", "default"))
    assert can(discipline="fifo-skip")


@pytest.mark.parametrize("policy", ["first-fit", "worst-fit", "random", "0.5*fgd+0.5*best-fit"])
def test_other_policies_are_not(policy):
    assert not can(policy=policy)


@pytest.mark.parametrize("discipline", ["fifo", "backfill", "priority"])
def test_other_disciplines_are_not(discipline):
    assert not can(discipline=discipline)


@pytest.mark.parametrize(
    "settings",
    [
        {"occupancy": True},
        {"sampling": Sampling(each_instant=True)},
        {"sampling": Sampling(every=1.0, fragmentation=True)},
        {"sampling": Sampling(every=1.0, causes=True)},
        {"sampling": Sampling(every=1.0, by_node=True)},
        {"breakdowns": (Breakdown(Component(NODE.name), 1.0, 2.0),)},
    ],
    ids=str,
)
def test_what_a_run_is_asked_to_keep_or_to_suffer_is_not(settings):
    assert not can(**settings)


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, workers=2),
        replace(JOB, spread=Spread(max_nodes=1)),
        asking(interconnect=Interconnect.NVLINK),
        asking(resource="example.com/gpu"),
        asking(gpus=None, share=Share(500, MiB(1_000))),
    ],
    ids=str,
)
def test_jobs_that_ask_for_more_are_not(other):
    assert not can(jobs=(JOB, other))


@pytest.mark.parametrize(
    "other",
    [
        replace(NODE, ready=False),
        replace(NODE, cordoned=True),
        replace(NODE, taints=(Taint("a", "b", Effect.NO_SCHEDULE),)),
        with_first_device(model="another"),
        with_first_device(clique=0),
        with_first_device(numa_node=0),
    ],
    ids=str,
)
def test_nodes_of_which_there_is_more_to_know_are_not(other):
    assert not can(nodes=(other,))
