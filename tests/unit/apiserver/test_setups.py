# SPDX-License-Identifier: Apache-2.0
import pytest
from extender_builders import MEMORY_MIB, uuid

from gpupack_apiserver.placed_process import ALLOCATION


@pytest.fixture
def placed(job):
    """Place two workers with two GPUs each, on a and b."""

    def show(name="train", *, labels=None, phase="Running", **changes):
        held = [
            {"node": node, "workers": str(worker), "gpus": [uuid(node, 1), uuid(node, 2)]}
            for worker, node in enumerate(("a", "b"))
        ]
        held = [each | {"memoryMiB": [MEMORY_MIB]} | changes for each in held]
        job(name, phase=phase, attempt=3, placement=held, labels=labels or {})

    return show


@pytest.fixture
def allocation(placed):
    placed("allocation-1", labels={ALLOCATION: "true"})
    return "team/allocation-1"


async def test_a_worker_of_an_allocation_sees_its_gpus(call, allocation):
    body = {"allocation": allocation, "worker": 1, "gpu_memory_fraction": 0.5}
    found = await call("setup-tensorflow", user="tenant", body=body)
    assert found.status == 200, found.body
    visible = found.body["environment"]["CUDA_VISIBLE_DEVICES"]
    assert visible == f"{uuid('b', 1)},{uuid('b', 2)}"
    assert found.body["memory_limit_mib"] == [MEMORY_MIB // 2] * 2


async def test_workers_of_an_allocation_connect_by_their_nodes(call, allocation):
    body = {"allocation": allocation, "worker": 1, "strategy": "multi_worker"}
    found = (await call("setup-tensorflow", user="tenant", body=body)).body
    assert found["tf_config"] == {
        "cluster": {"worker": ["a:12345", "b:12345"]},
        "task": {"type": "worker", "index": 1},
    }


async def test_workers_in_a_shared_pod_connect_by_its_name(call, job):
    gpus = [uuid("a", number) for number in range(2)]
    held = [{"node": "a", "workers": "0-1", "gpus": gpus, "memoryMiB": [MEMORY_MIB]}]
    entry = {"number": 3, "startedAt": "2026-11-24T10:00:00Z", "sharesPods": True}
    size = {"gpus": 1, "workers": 2}
    job("train", phase="Running", attempt=3, placement=held, spec=size, attempts=[entry])
    body = {"job": "team/train", "worker": 1, "strategy": "multi_worker"}
    found = (await call("setup-tensorflow", user="tenant", body=body)).body
    host = "train-3-0.train.team.svc"
    assert found["tf_config"]["cluster"]["worker"] == [f"{host}:12345", f"{host}:12346"]


async def test_workers_of_a_gpujob_connect_by_their_names(call, placed):
    placed()
    body = {"job": "team/train", "worker": 1, "mixed_precision": True}
    found = (await call("setup-pytorch", user="tenant", body=body)).body
    assert found["environment"] == {
        "CUDA_VISIBLE_DEVICES": f"{uuid('b', 1)},{uuid('b', 2)}",
        "MASTER_ADDR": "train-3-0.train.team.svc",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "4",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert (found["device"], found["process_group"]["rank"]) == ("cuda:0", 2)
    assert found["precision"] == {"enabled": True, "dtype": "bfloat16", "grad_scaler": False}


@pytest.mark.parametrize(
    ("given", "rank", "device"),
    [
        ({"local_rank": 1}, 3, "cuda:1"),
        ({"rank": 3}, 3, "cuda:1"),
        ({"rank": 2}, 2, "cuda:0"),
    ],
)
async def test_rank_and_local_rank_follow_from_each_other(call, placed, given, rank, device):
    placed()
    body = {"job": "team/train", "worker": 1, **given}
    found = (await call("setup-pytorch", user="tenant", body=body)).body
    assert (found["process_group"]["rank"], found["device"]) == (rank, device)


async def test_a_share_gets_its_fraction_of_memory(call, placed):
    placed(percent=25, memoryMiB=[20_000], gpus=[uuid("a", 1)])
    body = {"job": "team/train", "gpu_memory_fraction": 0.5}
    tensorflow = (await call("setup-tensorflow", user="tenant", body=body)).body
    assert tensorflow["memory_limit_mib"] == [10_000]
    pytorch = (await call("setup-pytorch", user="tenant", body=body)).body
    assert pytorch["memory_fraction"] == pytest.approx(10_000 / MEMORY_MIB)


async def test_devices_may_be_listed(call):
    body = {"devices": [uuid("a", 0)], "gpu_memory_fraction": 0.1, "strategy": "one_device"}
    found = (await call("setup-tensorflow", user="tenant", body=body)).body
    assert found["environment"]["CUDA_VISIBLE_DEVICES"] == uuid("a", 0)
    assert found["memory_limit_mib"] == [MEMORY_MIB // 10]


@pytest.mark.parametrize("path", ["setup-tensorflow", "setup-pytorch"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"devices": ["GPU-unknown"]}, "devices"),
        ({"devices": ["0", "0"]}, "devices"),
        ({"devices": ["0"], "job": "team/train"}, "job"),
        ({"job": "team/waits"}, "job"),
        ({"job": "team/train", "worker": 2}, "worker"),
        ({"gpu_memory_fraction": 2}, "gpu_memory_fraction"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
async def test_a_wrong_setup_is_named_with_its_field(call, placed, job, path, body, field):
    placed()
    job("waits")
    found = await call(path, user="tenant", body=body)
    assert (found.status, found.type) == (400, "application/problem+json")
    assert found.body.get("field", "") == field


@pytest.mark.parametrize("path", ["setup-tensorflow", "setup-pytorch"])
async def test_a_setup_for_a_job_in_a_forbidden_namespace_is_refused(call, job, path):
    job("secret", namespace="others")
    for kind in ("job", "allocation"):
        found = await call(path, user="tenant", body={kind: "others/secret"})
        assert found.status == 403


@pytest.mark.parametrize("path", ["setup-tensorflow", "setup-pytorch"])
async def test_a_gpujob_is_no_allocation(call, placed, path):
    placed()
    found = await call(path, user="tenant", body={"allocation": "team/train"})
    assert (found.status, found.body["detail"]) == (404, "there is no allocation team/train")
