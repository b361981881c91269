# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from fake_nvml import FakeNvml, gpu
from graded import graded
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.inventory.facts import GpuFacts, Links, cpu_list
from gpupack_agent.inventory.nvml import NvmlReader
from gpupack_agent.inventory.peers import REFRESH_SECONDS, Peers, complete_groups
from gpupack_agent.inventory.peers import connected_groups as agents
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.report import describe
from gpupack_devices.cliques import connected_groups as clients

PAIRS = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] < p[1]))


def scanned(tmp_path, *gpus):
    nvml = FakeNvml(*gpus)
    return NvmlReader(nvml, XidWatcher(nvml, notify=lambda: None), host_root=tmp_path).scan()


def seen(peers, *gpus, links=(True,)):
    facts = [
        GpuFacts(uuid=each["uuid"], index=n, name="", links=Links(nvlinks=links))
        for n, each in enumerate(gpus)
    ]
    peers.update({n: (each, facts[n]) for n, each in enumerate(gpus)})


@pytest.mark.parametrize("connected", [agents, clients])
def test_two_islands_are_named_after_their_lowest_gpu(connected):
    pairs = {(0, 1), (2, 3)}
    assert connected(range(5), lambda low, high: (low, high) in pairs) == {
        0: 0,
        1: 0,
        2: 2,
        3: 2,
    }


@pytest.mark.parametrize("connected", [agents, clients])
def test_a_gpu_without_peers_is_in_no_clique(connected):
    assert connected([0, 1], lambda _low, _high: False) == {}


@pytest.mark.parametrize("connected", [agents, clients])
@given(pairs=PAIRS)
def test_linked_gpus_always_share_a_clique_named_after_a_member(connected, pairs):
    found = connected(range(8), lambda low, high: (low, high) in pairs)
    assert all(found[low] == found[high] for low, high in pairs)
    assert all(found[name] == name and name <= member for member, name in found.items())


def test_gpus_that_reach_each_other_over_pcie_alone_are_no_nvlink_clique(tmp_path):
    both, peer = ["GPU-0", "GPU-1"], {"events": 0}
    found = scanned(
        tmp_path, gpu(0, peers=both, **peer), gpu(1, peers=both, **peer), gpu(2, peers=[], **peer)
    )
    assert [device.p2p_clique for device in found.devices] == [0, 0, None]
    assert [device.nvlink_clique for device in found.devices] == [None, None, None]


def test_a_driver_without_peer_information_makes_no_clique(tmp_path):
    found = scanned(tmp_path, gpu(0), gpu(1))
    assert {(device.p2p_clique, device.nvlink_clique) for device in found.devices} == {(None, None)}


def test_over_pcie_no_gpu_forwards_for_others():
    pairs = {(0, 1), (1, 2)}
    assert complete_groups(range(3), lambda low, high: (low, high) in pairs) == {0: 0, 1: 0}


@given(PAIRS)
def test_of_a_complete_clique_each_reaches_each(pairs):
    found = complete_groups(range(8), lambda low, high: (low, high) in pairs)
    members = {(low, high) for low in found for high in found if low < high}
    assert all(pair in pairs for pair in members if found[pair[0]] == found[pair[1]])
    assert all(list(found.values()).count(name) > 1 for name in found.values())


def test_the_matrix_is_read_again_at_changes_and_from_time_to_time():
    now = 0.0
    gpus = [gpu(n, island=0, peers=["GPU-0", "GPU-1"]) for n in range(2)]
    nvml = FakeNvml(*gpus)
    peers = Peers(nvml, now=lambda: now)
    queried = []
    for seconds, links, some in [
        (0, (True,), gpus),
        (1, (True,), gpus),
        (1, (False,), gpus),
        (1, (False,), gpus[:1]),
        (1, (False,), gpus),
        (REFRESH_SECONDS, (False,), gpus),
    ]:
        now += seconds
        before = nvml.asked_peers
        seen(peers, *some, links=links)
        queried.append(nvml.asked_peers - before)
    assert queried == [2, 0, 2, 0, 2, 2]


def test_links_that_come_up_after_the_driver_are_seen():
    now = 0.0
    gpus = [gpu(n, island=n) for n in range(2)]
    peers = Peers(FakeNvml(*gpus), now=lambda: now)
    seen(peers, *gpus)
    assert peers.nvlink == {}
    for each in gpus:
        each["island"] = 0
    now += REFRESH_SECONDS
    seen(peers, *gpus)
    assert peers.nvlink == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 96, 97, 5), "0-2,5,96-97"), (range(0, 1024, 2), "")],
)
def test_cpus_are_listed_as_linux_does(cpus, text):
    assert cpu_list(cpus) == text


def test_the_cpus_near_a_gpu_are_reported(tmp_path):
    (device,) = scanned(tmp_path, gpu(0, cpus=[0xFF, 1])).devices
    assert device.cpus == "0-7,64"


def test_the_state_of_each_link_is_reported(tmp_path):
    (device,) = graded(scanned(tmp_path, gpu(0, action=0, links=[1, 0, 1, 1])))
    assert (device.nvlinks, device.nvlinks_down, device.causes) == (4, (1,), ("NvlinkDown",))


def test_a_gpunode_of_64_gpus_stays_small(tmp_path):
    names = [f"GPU-{n}" for n in range(64)]
    gpus = [gpu(n, island=0, peers=names, cpus=[2**48 - 1, 2**48 - 1]) for n in range(64)]
    status = describe(scanned(tmp_path, *gpus), NodeMode(()))
    assert [device.p2p_clique for device in status.devices] == [0] * 64
    assert len(msgspec.json.encode(status)) < 64 << 10
