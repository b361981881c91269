# SPDX-License-Identifier: Apache-2.0
"""A gang that could use NVLink and does not is reported, without other consequences."""

import dataclasses
import json

import msgspec
import pytest

from gpupack_crds.devices import DeviceShare
from gpupack_crds.kinds import GpuNode
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_crds.results import SCHEMA
from gpupack_operator.decision.conditions import Type, get
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.nvlink_cliques import NvlinkCliques


def message(transport, *, simulated=False, speed=2.9):
    said = {"transport": transport, "bus_gb_per_s": speed}
    return json.dumps(
        {"schema": SCHEMA, "headline": "5 it/s", "simulated": simulated, "communication": said}
    )


def gpu_node(name, **cliques):
    devices = [
        {"uuid": uuid, "index": i, "model": "H200", "memoryMiB": 1, "health": "Healthy"}
        | ({} if clique is None else {"nvlinkClique": clique})
        for i, (uuid, clique) in enumerate(cliques.items())
    ]
    return msgspec.convert({"metadata": {"name": name}, "status": {"devices": devices}}, GpuNode)


def known(*nodes):
    found = NvlinkCliques()
    found.replace(list(nodes))
    return found


ONE_CLIQUE = known(gpu_node("a", g0=0, g1=0, g2=0, g3=0), gpu_node("b", g4=0, g5=0))


class Gang:
    """A gang that runs: worker I has GPU gI of the node that is named."""

    def __init__(self, build, nodes, *, percent=100, **spec):
        self.build = build
        self.job = build.admitted(nodes=tuple(nodes), **spec)
        devices = [DeviceShare(uuid=f"g{i}", percent=percent, memory_mib=1) for i in range(9)]
        places = (WorkerPlacement(i, node, (devices[i],)) for i, node in enumerate(nodes))
        self.nodes = nodes
        self.job = msgspec.structs.replace(
            self.job,
            status=msgspec.structs.replace(self.job.status, placement=by_node(places)),
        )

    def ends(self, *messages, cliques=ONE_CLIQUE, now=20, exit_code=0):
        """Every worker ends with a termination message; the answer is the condition."""
        phase = "Failed" if exit_code else "Succeeded"
        pods = [
            self.build.pod(
                i, node=self.nodes[i], phase=phase, exit_code=exit_code, ended=20, message=text
            )
            for i, text in enumerate(messages)
        ]
        return self.decides(pods, cliques=cliques, now=now)

    def decides(self, pods, *, cliques=ONE_CLIQUE, now=20):
        seen = self.build.see(self.job, jobs=[self.build.job()], pods=pods, now=now)
        seen = dataclasses.replace(seen, cliques=cliques.of(self.job.status.placement))
        self.job = self.build.after(self.job, decide(seen))
        return get(self.job.status, Type.FAST_COMMUNICATION)


@pytest.fixture
def gang(build):
    def begun(nodes="aa", **spec):
        return Gang(build, nodes, **spec)

    return begun


def test_workers_of_one_clique_that_use_sockets_are_reported(gang):
    train = gang()
    found = train.ends(message("NET/Socket"), message("NET/Socket"))
    assert (found.status, found.reason) == ("False", JobReason.NVLINK_NOT_USED)
    assert found.message.startswith(
        "workers 0-1 on node a have GPUs of one NVLink clique and use NET/Socket at 2.9 GB/s"
    )
    assert train.job.status.phase == "Succeeded"
    assert found.message in train.job.status.message


def test_separate_pods_are_named_as_the_reason_for_slow_communication(gang):
    separate = gang(podPerWorker=True).ends(message("SHM"), message("SHM"))
    assert "a pod for each worker keeps NVLink from them" in separate.message


def test_workers_that_use_nvlink_do_not_change_the_message_of_the_job(gang):
    train = gang()
    said = message("P2P/CUMEM", speed=294.2)
    found = train.ends(said, said)
    assert (found.status, found.reason) == ("True", JobReason.NVLINK_USED)
    assert found.message == "workers of one NVLink clique use P2P/CUMEM at 294 GB/s"
    assert "NVLink" not in train.job.status.message


def test_the_communication_of_a_failed_gang_is_reported_too(gang):
    found = gang(maxRestarts=0).ends(message("SHM"), message("SHM"), exit_code=3)
    assert found.status == "False"


@pytest.mark.parametrize(
    ("transports", "status"),
    [
        (("P2P/CUMEM,NET/IB", "NET/IB,P2P/CUMEM", "NET/IB"), "True"),
        (("NET/Socket,SHM", "NET/Socket,SHM", "NET/Socket"), "False"),
        (("NET/Socket", "NET/Socket", "NET/Socket"), "False"),
    ],
)
def test_other_transports_between_nodes_are_accepted(gang, transports, status):
    assert gang("aab").ends(*map(message, transports)).status == status


def test_the_message_counts_further_nodes_with_slow_communication(gang):
    nodes = known(gpu_node("a", g0=0, g1=0), gpu_node("b", g2=0, g3=0))
    found = gang("aabb").ends(*[message("NET/Socket")] * 4, cliques=nodes)
    assert "node a have GPUs of one NVLink clique, as on 1 more node, and use" in found.message


@pytest.mark.parametrize(
    "nodes",
    [
        known(gpu_node("a", g0=0, g1=1)),
        known(gpu_node("a", g0=None, g1=None)),
        known(gpu_node("a", g0=0)),
        known(),
    ],
    ids=["two cliques", "no NVLink", "a GPU that is not listed", "no GPUNode"],
)
def test_workers_without_nvlink_between_them_are_not_reported(gang, nodes):
    assert gang().ends(message("NET/Socket"), message("NET/Socket"), cliques=nodes) is None


def test_workers_on_separate_nodes_are_not_reported(gang):
    nodes = known(gpu_node("a", g0=0), gpu_node("b", g1=0))
    assert gang("ab").ends(message("NET/Socket"), message("NET/Socket"), cliques=nodes) is None


def test_workers_with_shares_are_not_reported(gang):
    share = {"percent": 50, "memory": "1Gi"}
    assert gang(percent=50, share=share).ends(message("tcp"), message("tcp")) is None


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_workers_with_another_backend_than_nccl_are_not_reported(gang, backend):
    found = gang(distributed={"backend": backend}).ends(message("tcp"), message("tcp"))
    assert found is None


def test_simulated_results_are_not_reported(gang):
    said = message("tcp", simulated=True)
    assert gang().ends(said, said) is None


@pytest.mark.parametrize(
    "transport", ["", ",", "SHM\x1b[31m", "NET/Socket\n", "via/ NET", "é", "P2P//x"]
)
def test_other_texts_of_a_container_do_not_reach_the_condition(gang, transport):
    assert gang().ends(message(transport), message(transport)) is None


def test_figures_of_any_size_are_short(gang):
    found = gang().ends(message("SHM", speed=1e300), message("SHM"))
    assert "SHM at 1e+300 GB/s" in found.message


def test_the_condition_stays_when_gpunodes_change(gang):
    train = gang()
    said = message("SHM")
    before = train.ends(said, said)
    apart = known(gpu_node("a", g0=0, g1=1))
    assert train.ends(said, said, cliques=apart, now=30) == before


def test_the_condition_is_written_as_soon_as_the_gpus_are_known(gang):
    train = gang()
    said = message("SHM")
    assert train.ends(said, said, cliques=known()) is None
    assert train.ends(said, said, now=30).status == "False"


def test_workers_that_ended_early_are_reported_while_the_others_run(gang, build):
    train = gang()
    ended = build.pod(0, phase="Succeeded", exit_code=0, ended=20, message=message("SHM"))
    found = train.decides([ended, build.pod(1)], now=40)
    assert (found.status, train.job.status.phase) == ("False", "Running")
    assert found.message in train.job.status.message


def test_the_next_attempt_starts_without_the_condition(gang, build):
    train = gang()
    ended = build.pod(0, phase="Succeeded", exit_code=0, ended=20, message=message("SHM"))
    train.decides([ended, build.pod(1)], now=40)
    lost = build.pod(1, phase="Failed", exit_code=1, ended=50, disrupted=(49, "NodeDeleted"))
    assert train.decides([ended, lost], now=51) is None
    assert train.job.status.phase == "Pending"


def test_the_cliques_of_a_deleted_gpunode_are_forgotten():
    nodes = known(gpu_node("a", g0=0), gpu_node("b", g4=0))
    nodes.remove(gpu_node("a"))
    nodes.upsert(gpu_node("b", g4=None))
    places = by_node(WorkerPlacement(i, name) for i, name in enumerate("ab"))
    assert nodes.of(places) == {}
