# SPDX-License-Identifier: Apache-2.0
"""The server of one machine, as a separate process."""

import stat

import host_gpus
import httpx
import pytest
from host_server import PATIENCE_SECONDS, HostServer
from self_signed import self_signed

from gpupack import TrainingGPUConfig
from gpupack_apiserver import app
from gpupack_apiserver.host.app import CALLS

pytestmark = pytest.mark.timeout(600)


def held(answer):
    return {uuid for each in answer["gpu_config"]["workers"] for uuid in each["device_uuids"]}


def holders(server):
    return server.call("GET", "/holders").json()["holders"]


@pytest.fixture
def machine(shared):
    """Return the Python library on the same ledger, in this process."""
    with host_gpus.manager(shared.ledger) as found:
        yield found


def test_status_and_node_show_the_ledger(shared, machine):
    with machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=3)) as ours:
        status = shared.call("GET", "/status").json()
        (node,) = shared.call("GET", "/nodes").json()["nodes"]
    assert (status["total_nodes"], status["total_gpus"], status["available_gpus"]) == (1, 8, 5)
    taken = {each["uuid"] for each in node["devices"] if each["free_percent"] == 0}
    assert taken == set(ours.device_uuids)
    assert all(each["simulated"] for each in (status, node, *node["devices"]))


def test_processes_that_hold_gpus_are_listed(shared, machine):
    share = TrainingGPUConfig(compute_ratio=0.25, memory_gb=10)
    with machine.allocate_gpu_resources(share) as ours:
        (found,) = holders(shared)
    assert found["uuid"] == ours.device_uuids[0]
    assert (found["percent"], found["isolation"]) == (25, "cooperative")
    assert found["pod"].startswith("process ")
    assert found["namespace"].startswith("user-")


def test_the_library_sees_an_allocation_until_its_release(shared, machine):
    made = shared.call("POST", "/allocate", json={"gpu_count": 6})
    assert made.status_code == 201
    ours = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=2))
    assert not held(made.json()) & set(ours.device_uuids)
    assert machine.get_gpu_status().available_gpus == 0
    path = f"/allocations/{made.json()['allocation_id']}"
    assert shared.call("GET", path).json()["success"]
    assert shared.call("DELETE", path).status_code == 204
    assert shared.call("GET", path).status_code == 404
    assert shared.call("DELETE", path).status_code == 404
    assert machine.get_gpu_status().available_gpus == 6
    ours.release()


def test_an_allocation_that_does_not_fit_holds_no_gpu_and_names_the_reason(shared):
    refused = shared.call("POST", "/allocate", json={"gpu_count": 9}).json()
    assert (refused["success"], refused["phase"]) == (False, "Failed")
    assert "fewer than 9 GPUs" in refused["message"]
    assert holders(shared) == []


def test_calls_with_one_key_create_one_allocation(shared):
    key = {"Idempotency-Key": "once"}
    first, second = (
        shared.call("POST", "/allocate", json={"gpu_count": 2}, headers=key).json() for _ in "ab"
    )
    assert first["allocation_id"] == second["allocation_id"]
    assert held(first) == held(second)
    assert len(holders(shared)) == 2
    assert shared.call("DELETE", f"/allocations/{first['allocation_id']}").is_success


def test_a_setup_uses_the_gpus_of_the_allocation(shared):
    made = shared.call("POST", "/allocate", json={"gpu_count": 2}).json()
    asked = {"allocation": made["allocation_id"]}
    for framework in ("pytorch", "tensorflow"):
        setup = shared.call("POST", f"/setup-{framework}", json=asked).json()
        assert set(setup["environment"]["CUDA_VISIBLE_DEVICES"].split(",")) == held(made)
    assert shared.call("DELETE", f"/allocations/{made['allocation_id']}").is_success


def test_validation_returns_what_fits_now(shared):
    fits = shared.call("POST", "/validate", json={"gpu_count": 8}).json()
    never = shared.call("POST", "/validate", json={"gpu_count": 9}).json()
    assert (fits["valid"], fits["fits_now"], never["valid"]) == (True, True, False)


def test_monitoring_has_figures_from_the_start(shared):
    assert shared.call("GET", "/monitoring").json()["current"]["gpus"] == 8


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"gpu_count": 0}, "gpu_count"),
        ({"namespace": "team"}, "namespace"),
        ({"seconds": 5}, "seconds"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_field_is_named(shared, body, field):
    answer = shared.call("POST", "/allocate", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_calls_that_need_a_cluster_are_refused_with_that_reason(shared):
    served = {(path, each) for call in CALLS for path in call.paths for each in call.http_methods}
    others = {
        (path, each) for call in app.CALLS for path in call.paths for each in call.http_methods
    } - served
    assert len(others) >= 9
    for path, method in others:
        named = path.replace("{namespace:str}", "a").replace("{name:str}", "b")
        answer = shared.call(str(method), named.removeprefix("/api/v1/gpu"))
        assert answer.status_code == 501, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert "cluster" in answer.json()["detail"]


def test_a_setup_of_a_gpujob_is_refused_without_a_cluster(shared):
    answer = shared.call("POST", "/setup-pytorch", json={"job": "team/train"})
    assert answer.status_code == 501


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer wrong", "Basic é"])
@pytest.mark.parametrize("path", ["/status", "/holders", "/jobs", "/allocations/this-machine/a"])
def test_calls_without_the_token_are_refused(shared, shown, path):
    headers = {"Authorization": shown.encode("latin-1")}
    answer = shared.get(path, headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["detail"]


def test_metrics_need_the_token_and_health_does_not(shared):
    metrics = shared.url.removesuffix("/api/v1/gpu") + "/metrics"
    assert httpx.get(metrics, timeout=PATIENCE_SECONDS).status_code == 401
    token = {"Authorization": f"Bearer {shared.token}"}
    text = httpx.get(metrics, headers=token, timeout=PATIENCE_SECONDS).text
    assert "gpupack_api_calls_total" in text
    assert shared.get("/health").json() == {"status": "ok", "missing": ""}


def test_only_the_owner_can_read_the_token_and_a_command_prints_it(shared):
    assert stat.S_IMODE((shared.state / "token").stat().st_mode) == 0o600
    assert shared.command("token").stdout.strip() == shared.token
    assert len(shared.token) >= 32


def test_a_command_checks_the_health(shared, tmp_path):
    assert shared.is_healthy()
    alone = HostServer(tmp_path).command("health")
    assert alone.returncode == 1
    assert "refused" in alone.stderr


def test_a_second_server_reports_the_used_port_in_one_line(shared):
    second = shared.command("serve")
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    said = f"gpupack-host: 127.0.0.1:{shared.port} is in use; "
    assert second.stderr.splitlines()[-1].startswith(said)
    assert "GPUPACK_LISTEN_PORT" in second.stderr


def test_beyond_loopback_the_server_needs_a_certificate(tmp_path):
    plain = HostServer(tmp_path, GPUPACK_LISTEN_ADDRESS="0.0.0.0").command("serve")
    assert plain.returncode == 1
    assert "GPUPACK_TLS_CERT" in plain.stderr
    cert, key = self_signed(tmp_path)
    server = HostServer(
        tmp_path,
        GPUPACK_LISTEN_ADDRESS="0.0.0.0",
        GPUPACK_TLS_CERT=str(cert),
        GPUPACK_TLS_KEY=str(key),
    )
    try:
        assert server.start().call("GET", "/status").json()["total_gpus"] == 8
        assert server.is_healthy()
    finally:
        server.stop()


def test_health_reports_an_unusable_ledger(tmp_path):
    server = HostServer(tmp_path)
    (tmp_path / "ledger").write_text("no folder")
    try:
        health = server.start(until="/health").get("/health").json()
        assert health["status"] == "stale"
        assert "it is not a folder" in health["missing"]
        assert server.get("/health/ready").status_code == 503
        assert server.command("health").returncode == 1
        assert server.call("GET", "/status").status_code == 503
    finally:
        server.stop()
