# SPDX-License-Identifier: Apache-2.0
"""A killed server neither loses GPUs nor allocates them twice."""

import concurrent.futures
import time

import host_gpus
import httpx
import pytest

from gpupack import TrainingGPUConfig

ASKS_SECONDS = 400.0
"""The server is started three times in this period, a minute each on a busy machine."""

pytestmark = pytest.mark.timeout(600)


def held(answer):
    return {uuid for each in answer["gpu_config"]["workers"] for uuid in each["device_uuids"]}


def test_reservations_survive_a_kill_and_restart_of_the_server(server):
    made = server.call("POST", "/allocate", json={"gpu_count": 5}).json()
    server.kill()
    with host_gpus.manager(server.ledger) as machine:
        assert machine.get_gpu_status().available_gpus == 3
        ours = machine.allocate_gpu_resources(TrainingGPUConfig(gpu_count=3))
        assert not held(made) & set(ours.device_uuids)
        server.start()
        path = f"/allocations/{made['allocation_id']}"
        again = server.call("GET", path).json()
        assert held(again) == held(made)
        assert server.call("GET", "/status").json()["available_gpus"] == 0
        assert server.call("DELETE", path).is_success
        assert machine.get_gpu_status().available_gpus == 5


def allocated(server, key):
    """Return the answer to a caller that repeats its call; None: it is refused."""
    ends = time.monotonic() + ASKS_SECONDS
    while time.monotonic() < ends:
        try:
            answer = server.call(
                "POST", "/allocate", json={"gpu_count": 1}, headers={"Idempotency-Key": key}
            )
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        assert answer.status_code == 201, answer.text
        return answer.json() if answer.json()["success"] else None
    raise AssertionError(server.said())


def storm(server, threads):
    """Kill the server repeatedly during calls; return the answers, and the other holders."""
    holders = []
    asked = [threads.submit(allocated, server, f"key-{number}") for number in range(6)]
    for count in (1, 2, 1):
        server.kill()
        holders.append(host_gpus.Holder(server.ledger, gpu_count=count))
        server.start()
        # Long enough for some calls to be answered while others are in progress.
        time.sleep(0.05)
    return [each.result() for each in asked if each.result()], holders


def test_no_gpu_is_allocated_twice_while_the_server_is_killed(server):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        answered, holders = storm(server, threads)
    try:
        taken = [uuid for each in answered for uuid in held(each)]
        taken += [uuid for each in holders for uuid in each.held or ()]
        assert answered
        assert len(taken) == len(set(taken))
        holding = [each["uuid"] for each in server.call("GET", "/holders").json()["holders"]]
        assert sorted(holding) == sorted(taken)
    finally:
        for each in holders:
            each.end()
    for each in answered:
        assert server.call("DELETE", f"/allocations/{each['allocation_id']}").is_success
    assert server.call("GET", "/status").json()["available_gpus"] == 8
