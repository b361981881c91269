# SPDX-License-Identifier: Apache-2.0
"""The library with fixed answers; tests/e2e/test_python_api.py has the real server."""

import json
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from rest_answers import problem

from gpupack import (
    CallRefused,
    GpuConfig,
    GpupackError,
    GPUResourceManager,
    NotEnoughGpus,
    ServerUnreachable,
    TrainingGPUConfig,
    Unsupported,
)
from gpupack.backend import Patience
from gpupack.cluster.calls import Calls
from gpupack.cluster.endpoint import Endpoint
from gpupack_restapi.allocations import Workload

TWO = TrainingGPUConfig(gpu_count=2, gpu_type="H100")
UUIDS = ["GPU-a", "GPU-b"]
HELD = {
    "success": True,
    "allocation_id": "team/allocation-1",
    "node_name": "node-1",
    "phase": "Running",
    "expires": "2030-01-01T00:00:00Z",
    "gpu_config": {
        "gpu_count": 2,
        "workers": [{"node_name": "node-1", "device_ids": [0, 1], "device_uuids": UUIDS}],
        "environment": {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
    },
    "something_newer": 1,
}
WAITS = HELD | {
    "success": False,
    "phase": "Pending",
    "message": "2 GPUs are missing",
    "gpu_config": {"gpu_count": 0, "workers": [], "environment": {}},
}
GONE = (204, None)
VALID = {"valid": True, "fits_now": True, "workers": 1, "gpus_per_worker": 2, "nodes": ["node-1"]}


def body(request):
    return json.loads(request.content)


def test_gpus_are_held_and_released(serve):
    backend, server = serve((201, HELD), GONE, namespace="team")
    gpus = backend.allocate(TWO, Patience(0, 600))
    assert (gpus.node_name, gpus.device_uuids) == ("node-1", tuple(UUIDS))
    assert gpus.environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert gpus.expires.year == 2030
    assert body(server.asked[0]) == {
        "gpu_count": 2,
        "gpu_type": "H100",
        "memory_gb": 0.0,
        "distributed_training": False,
        "mixed_precision": False,
        "namespace": "team",
        "seconds": 600,
    }
    gpus.release()
    assert (server.asked[1].method, server.asked[1].url.path) == (
        "DELETE",
        "/api/v1/gpu/allocations/team/allocation-1",
    )


def test_a_workload_runs_on_the_gpus_of_an_allocation(serve):
    backend, server = serve((200, HELD))
    backend.run("team/allocation-1", Workload("train:1", ("torchrun", "train.py"), {"SEED": "1"}))
    (asked,) = server.asked
    assert asked.url.path == "/api/v1/gpu/allocations/team/allocation-1/workload"
    assert asked.headers["idempotency-key"]
    assert body(asked) == {
        "image": "train:1",
        "command": ["torchrun", "train.py"],
        "environment": {"SEED": "1"},
        "non_root": False,
    }


def test_a_lost_answer_is_requested_again_with_the_same_key(serve):
    lost = httpx.ReadError("connection reset")
    backend, server = serve(lost, (503, {}, {"Retry-After": "1"}), (429, {}), (201, HELD))
    backend.allocate(TWO, Patience(0, 600))
    keys = {each.headers["idempotency-key"] for each in server.asked}
    assert len(server.asked) == 4
    assert len(keys) == 1
    assert keys != {""}


def test_an_interrupted_allocation_is_released_by_its_key(serve):
    backend, server = serve(KeyboardInterrupt(), (201, WAITS), GONE)
    with pytest.raises(KeyboardInterrupt):
        backend.allocate(TWO, Patience(60, 600))
    first, second, last = server.asked
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert (last.method, last.url.path.rpartition("/")[2]) == ("DELETE", "allocation-1")


def test_a_rejected_token_is_read_once_more(serve):
    backend, server = serve((401, problem(401, detail="who?")), (200, VALID), forget=lambda: True)
    assert backend.validate(TWO)
    assert [each.headers["authorization"] for each in server.asked] == [
        "Bearer token-0",
        "Bearer token-1",
    ]


@pytest.mark.parametrize("direct", [True, False])
def test_loopback_and_service_addresses_use_no_proxy(direct, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    trusted = ssl.create_default_context()
    endpoint = Endpoint(
        address=lambda: "http://localhost:9",
        trusted=lambda: trusted,
        token=lambda: "t",
        namespace="",
        close=lambda: None,
        direct=direct,
    )
    proxies = [each for each in Calls(endpoint)._http._mounts.values() if each is not None]
    assert bool(proxies) is not direct


def test_a_caller_with_a_certificate_sends_no_authorization_header(serve):
    backend, server = serve(
        (200, VALID), (401, problem(401, detail="this one takes a token")), token=None
    )
    assert backend.validate(TWO)
    with pytest.raises(CallRefused, match="takes a token; set GPUPACK_TOKEN"):
        backend.allocate(TWO, Patience(0, 600))
    assert not any("authorization" in each.headers for each in server.asked)


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (httpx.WriteError("broken pipe"), "check your client certificate"),
        (httpx.ConnectError("refused"), "check that it runs, and that GPUPACK_SERVER"),
    ],
)
def test_a_closed_connection_suggests_a_rejected_certificate(serve, ends, says):
    backend, _ = serve(*[ends] * 6, token=None)
    with pytest.raises(ServerUnreachable, match=says):
        backend.validate(TWO)


def test_a_refusal_shows_no_value_where_the_answer_has_none(serve):
    refusal = problem(401, detail="this call needs a token", field="Authorization")
    backend, _ = serve((401, refusal), token=None)
    with pytest.raises(CallRefused, match=r"^Authorization: this call needs a token; set GPUPACK"):
        backend.allocate(TWO, Patience(0, 600))


def test_two_allocations_have_two_keys(serve):
    backend, server = serve((201, HELD), (201, HELD))
    backend.allocate(TWO, Patience(0, 600))
    backend.allocate(TWO, Patience(0, 600))
    assert len({each.headers["idempotency-key"] for each in server.asked}) == 2


def test_closing_a_manager_deletes_the_allocation_that_it_waits_for(serve):
    backend, server = serve((201, WAITS), *[(200, WAITS)] * 50, namespace="team")
    manager = GPUResourceManager(backend, GpuConfig())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(manager.allocate_gpu_resources, TWO, timeout_seconds=300)
        while not server.asked:
            time.sleep(0.01)
        manager.close()
        with pytest.raises(GpupackError, match="closed during the call"):
            waiting.result(30)
    assert server.asked[-1].method == "DELETE"


def test_the_token_is_read_for_every_call(serve):
    backend, server = serve((200, VALID), (200, VALID))
    backend.validate(TWO)
    backend.validate(TWO)
    assert [each.headers["authorization"] for each in server.asked] == [
        "Bearer token-0",
        "Bearer token-1",
    ]


def test_gpus_are_waited_for(serve):
    backend, _ = serve((201, WAITS), (200, WAITS), (200, HELD))
    assert backend.allocate(TWO, Patience(30, 600)).held


def test_an_allocation_that_is_not_held_in_time_is_released_with_a_reason(serve):
    backend, server = serve((201, WAITS), (200, VALID), GONE)
    with pytest.raises(NotEnoughGpus, match="2 GPUs are missing") as raised:
        backend.allocate(TWO, Patience(0, 600))
    assert not raised.value.never
    assert server.asked[-1].method == "DELETE"


def test_a_request_that_can_never_fit_is_reported_as_such(serve):
    backend, server = serve((201, WAITS), (200, VALID | {"valid": False}), GONE)
    with pytest.raises(NotEnoughGpus, match="2 GPUs are missing") as raised:
        backend.allocate(TWO, Patience(0, 600))
    assert raised.value.never
    assert [each.method for each in server.asked] == ["POST", "POST", "DELETE"]


def test_a_failed_validation_does_not_replace_the_error(serve):
    backend, server = serve((201, WAITS), (403, problem(403, detail="not you")), GONE)
    with pytest.raises(NotEnoughGpus, match="2 GPUs are missing") as raised:
        backend.allocate(TWO, Patience(0, 600))
    assert not raised.value.never
    assert server.asked[-1].method == "DELETE"


def test_an_allocation_that_ended_is_not_waited_for(serve):
    backend, server = serve((201, WAITS | {"phase": "Failed", "message": "deadline"}), GONE)
    with pytest.raises(NotEnoughGpus, match="has ended: deadline"):
        backend.allocate(TWO, Patience(60, 600))
    assert server.asked[-1].method == "DELETE"


def test_a_stopped_wait_releases_the_allocation(serve):
    backend, server = serve((201, WAITS), GONE)
    patience = Patience(60, 600, threading.Event())
    patience.stop.set()
    with pytest.raises(NotEnoughGpus):
        backend.allocate(TWO, patience)
    assert server.asked[-1].method == "DELETE"


def test_releasing_a_finished_allocation_is_no_error(serve):
    backend, _ = serve((201, HELD), (404, problem(404, detail="there is none")))
    backend.allocate(TWO, Patience(0, 600)).release()


def test_all_pages_of_nodes_are_read(serve):
    node = {
        "node_name": "a",
        "gpu_type": "H100",
        "total_gpus": 8,
        "available_gpus": 8,
        "memory_per_gpu": 80.0,
        "utilization": 0.0,
        "ready": True,
    }
    pages = [{"nodes": [node], "next": "a"}, {"nodes": [node | {"node_name": "b"}], "next": ""}]
    backend, server = serve(*((200, page) for page in pages))
    assert [each.node_name for each in backend.nodes(gpu_type="H100")] == ["a", "b"]
    assert server.asked[1].url.params["after"] == "a"


def test_a_refusal_names_field_value_and_fix(serve):
    fields = {"field": "gpu_type", "value": "X", "fix": "name a model"}
    refusal = problem(400, detail="no such model", **fields)
    backend, _ = serve((400, refusal))
    with pytest.raises(CallRefused, match="gpu_type: 'X': no such model; name a model") as raised:
        backend.validate(TWO)
    assert (raised.value.status, raised.value.field, raised.value.value, raised.value.fix) == (
        400,
        "gpu_type",
        "X",
        "name a model",
    )


def test_a_rejected_caller_reads_how_to_get_a_token(serve):
    backend, _ = serve((401, problem(401, detail="the token is not valid")))
    with pytest.raises(CallRefused, match="the token is not valid; set GPUPACK_TOKEN"):
        backend.status()


@pytest.mark.parametrize("answer", [(200, {"hello": "world"}), (200, []), (404, "<html>")])
def test_another_server_is_reported(answer, serve):
    backend, _ = serve(answer)
    with pytest.raises((ServerUnreachable, CallRefused)) as raised:
        backend.status()
    assert str(raised.value)


def test_a_server_that_never_answers_is_named(serve):
    backend, server = serve(*[httpx.ConnectError("connection refused")] * 6)
    with pytest.raises(ServerUnreachable, match="https://here does not answer: connection refused"):
        backend.status()
    assert len(server.asked) == 6


def test_a_server_that_is_never_ready_is_reported_with_its_reason(serve):
    backend, _ = serve(*[(503, problem(503, detail="the state is stale"))] * 6)
    with pytest.raises(CallRefused, match="the state is stale"):
        backend.status()


def test_shares_are_refused_by_the_cluster_backend(serve):
    backend, server = serve()
    with pytest.raises(Unsupported, match="submit a GPUJob with `share`"):
        backend.allocate(TrainingGPUConfig(compute_ratio=0.5, memory_gb=8), Patience(0, 600))
    assert server.asked == []


def test_simulated_gpus_of_a_cluster_are_marked(serve):
    workers = [{"node_name": "n", "device_ids": [0], "device_uuids": ["GPU-sim-n-1234-0"]}]
    simulated = HELD | {"gpu_config": HELD["gpu_config"] | {"workers": workers}}
    backend, _ = serve((201, simulated))
    gpus = backend.allocate(TWO, Patience(0, 600))
    assert gpus.simulated
    assert gpus.environment["GPUPACK_SIMULATED"] == "true"


def test_closing_ends_the_port_forward(serve):
    backend, server = serve()
    backend.close()
    assert server.closed
