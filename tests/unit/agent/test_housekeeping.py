# SPDX-License-Identifier: Apache-2.0
import dataclasses
import types

import msgspec
import pytest

from gpupack_agent import probe
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.desk import Desk
from gpupack_agent.housekeeping import Household
from gpupack_agent.identity import Identities
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.plugin import Plugin
from gpupack_agent.pods import PodStore
from gpupack_agent.prestart import Node
from gpupack_agent.roster import Roster
from gpupack_agent.tenure import Tenure
from gpupack_crds import names
from gpupack_kube import objects


def desk(resource, prefix, per_gpu, *, complete=True):
    registration = types.SimpleNamespace(complete=complete)
    return Desk(Plugin(resource, prepare=None), registration, prefix=prefix, per_gpu=per_gpu)


@pytest.fixture
def household(build, cgroups, tmp_path):
    """A node with two GPUs, the second of which failed."""
    roster = Roster()
    roster.update(Findings(devices=(build.device(0), build.device(1, health="Failed"))))
    node = Node(PodStore(), SpecFolder(tmp_path / "cdi"), Cgroups(cgroups.root), roster)
    return Household(
        node=node,
        identities=Identities(node.pods, kubelet=None, api=None),
        desks=(desk(names.GPU, "gpu", 1), desk(names.GPU_SHARE, "share", 20)),
        tenure=Tenure(()),
        probe_file=tmp_path / "alive",
    )


def give(household, record):
    household.node.specs.write(record, Injection(), simulated=True)


def test_specs_of_dead_pods_are_collected_and_those_of_live_ones_stay(household, build, cgroups):
    give(household, build.record("dead", build.share(0), tickets=["gpu-0"]))
    give(household, build.record("alive", build.share(1), tickets=["gpu-1"]))
    cgroups.add("alive")
    household.round()
    assert [record.name for record in household.node.specs.records] == ["alive"]


def test_the_spec_of_a_finished_pod_goes_with_its_last_process(household, build, cgroups):
    give(household, build.record("a"))
    body = build.pod_json("a", build.share(), phase="Succeeded")
    household.node.pods.upsert(msgspec.convert(body, objects.Pod))
    cgroups.add("a")
    household.round()
    assert len(household.node.specs.records) == 1
    cgroups.add("a", populated=False)
    household.round()
    assert household.node.specs.records == ()


def test_a_failed_gpu_takes_one_free_ticket_out_of_allocatable(household, build, cgroups):
    give(household, build.record("a", build.share(0), tickets=["gpu-1"]))
    cgroups.add("a")
    household.round()
    assert [(each.id, each.healthy) for each in household.desks[0].plugin._tickets] == [
        ("gpu-0", False),
        ("gpu-1", True),
    ]


def unhealthy(household):
    """How many tickets of each resource the kubelet hears to be unusable."""
    published = [desk.plugin._tickets for desk in household.desks]
    return [sum(not ticket.healthy for ticket in tickets) for tickets in published]


def test_there_are_twenty_slots_for_shares_of_each_gpu(household):
    household.round()
    assert [len(desk.plugin._tickets) for desk in household.desks] == [2, 40]
    assert unhealthy(household) == [1, 20]


def test_shares_of_a_failed_gpu_keep_their_slots_and_it_is_not_to_be_had_whole(
    household, build, cgroups
):
    share = build.share(1, percent=30)
    give(household, build.record("a", share, tickets=["share-39"]))
    cgroups.add("a")
    household.round()
    assert unhealthy(household) == [1, 19]
    assert household.desks[1].plugin._tickets[39].healthy


def test_the_agent_is_ready_once_both_resources_are_registered(household):
    gpus = desk(names.GPU, "gpu", 1)
    shares = desk(names.GPU_SHARE, "share", 20, complete=False)
    half = dataclasses.replace(household, desks=(gpus, shares))
    half.round()
    assert probe.verdict(household.probe_file, ready=True) == "not registered with the kubelet"


def test_an_agent_that_only_observes_is_ready_without_a_registration(household):
    gpus = desk(names.GPU, "gpu", 1, complete=False)
    tenure = Tenure(("nvidia.com/gpu",))
    tenure.see(frozenset({"nvidia.com/gpu"}))
    dataclasses.replace(household, desks=(gpus,), tenure=tenure).round()
    assert probe.verdict(household.probe_file, ready=True) == ""


def test_a_round_leaves_a_sign_of_life(household):
    household.round()
    assert probe.verdict(household.probe_file, ready=True) == ""
