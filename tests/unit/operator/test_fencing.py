# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.fencing import Fence

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"
AGENT = LEASES.format("gpupack-system", "gpunode-a")
KUBELET = LEASES.format("kube-node-lease", "a")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Leases:
    """Both Leases of node a, and a fence that reads them every 5 s."""

    def __init__(self, server):
        self.server = server
        self.clock = Clock()
        self.fence = Fence(server.api, namespace="gpupack-system", clock=self.clock)
        self.beat(AGENT)
        self.beat(KUBELET)

    def beat(self, path):
        version = int(
            self.server.objects.get(path, {"metadata": {"resourceVersion": "0"}})["metadata"][
                "resourceVersion"
            ]
        )
        meta = {"name": path.rpartition("/")[2], "resourceVersion": str(version + 1)}
        self.server.put(path, {"metadata": meta, "spec": {"leaseDurationSeconds": 40}})

    async def watch(self, seconds, *beating):
        """Look for so long while these Leases are renewed."""
        silent = frozenset()
        for _ in range(0, seconds + 1, 5):
            silent = await self.look(*beating)
            self.clock.now += 5
        return silent

    async def look(self, *beating):
        for path in beating:
            self.beat(path)
        return await self.fence.silent_nodes(["a"])


@pytest.fixture
def leases(server):
    return Leases(server)


async def test_a_node_is_silent_when_neither_lease_changed_for_its_duration(leases):
    assert await leases.watch(40) == set()
    assert await leases.look() == {"a"}


@pytest.mark.parametrize("beating", [AGENT, KUBELET], ids=["agent", "kubelet"])
async def test_a_renewal_of_either_lease_keeps_a_node_alive(leases, beating):
    assert await leases.watch(200, beating) == set()


async def test_a_renewal_ends_the_silence_of_a_node(leases):
    assert await leases.watch(50) == {"a"}
    assert await leases.look(AGENT) == set()


async def test_a_node_whose_leases_stay_missing_is_silent(leases):
    leases.server.objects.clear()
    assert await leases.watch(40) == set()
    assert await leases.look() == {"a"}


async def test_a_node_whose_leases_are_created_again_with_a_new_node_is_not_silent(leases):
    leases.server.objects.clear()
    assert await leases.watch(15) == set()
    assert await leases.look(AGENT, KUBELET) == set()


@pytest.mark.parametrize("apart", [16, 41, 300])
async def test_a_dead_node_is_detected_with_any_interval_between_reads(leases, apart):
    await leases.look()
    while leases.clock.now <= 140:
        leases.clock.now += apart
    assert await leases.look() == {"a"}


async def test_a_node_that_renewed_between_two_distant_reads_is_not_silent(leases):
    await leases.look()
    leases.clock.now += 300
    assert await leases.look(AGENT) == set()


async def test_jobs_that_wait_for_one_node_share_a_read(leases):
    await leases.look()
    leases.server.objects.clear()
    leases.clock.now += 1
    assert await leases.watch(0) == set()


async def test_observations_of_unused_nodes_are_forgotten(leases):
    for number in range(50):
        await leases.fence.silent_nodes([f"gone-{number}"])
        leases.clock.now += 100
    await leases.look()
    assert len(leases.fence._observations) < 20
