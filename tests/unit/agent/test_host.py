# SPDX-License-Identifier: Apache-2.0
"""The agent of a machine without a cluster, as a process of its own."""

import signal
import subprocess
import sys
import time

import httpx
import pytest
from ports import free_port
from processes import environment, run_process

GPUS = "nodes:\n- match: '*'\n  devices: [{model: H100, memoryMiB: 76294, count: 4}]\n"


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "gpus.yaml").write_text(GPUS)
    made = {
        "GPUPACK_INVENTORY": "simulated",
        "GPUPACK_SIMULATED_FILE": str(tmp_path / "gpus.yaml"),
        "GPUPACK_SIMULATED_LAYOUTS": str(tmp_path),
        "GPUPACK_SCAN_SECONDS": "0.2",
        "GPUPACK_METRICS_PORT": str(free_port()),
        "GPUPACK_PROBE_FILE": str(tmp_path / "alive"),
    }
    command = [sys.executable, "-m", "gpupack_agent", "host"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(**made), stderr=subprocess.PIPE, text=True
    )
    yield process, made
    process.kill()
    process.communicate()


def metrics(made):
    return httpx.get(f"http://127.0.0.1:{made['GPUPACK_METRICS_PORT']}/metrics").text


def until(condition, seconds=30):
    ends = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_it_shows_the_health_of_the_gpus_and_follows_it(agent, tmp_path):
    _, made = agent
    until(lambda: metrics(made).count('health="Healthy",modelName="H100"} 1.0') == 4)
    sick = GPUS.replace("count: 4", "count: 4, health: Failed, cause: made so")
    (tmp_path / "gpus.yaml").write_text(sick)
    until(lambda: metrics(made).count('health="Failed",modelName="H100"} 1.0') == 4)
    # A file that cannot be read is no reason to forget them.
    (tmp_path / "gpus.yaml").write_text("nodes: [")
    time.sleep(0.5)
    assert metrics(made).count('modelName="H100"') == 16


def test_the_probe_succeeds_until_a_signal_ends_the_agent(agent):
    process, made = agent
    probe = [sys.executable, "-m", "gpupack_agent.probe"]
    until(lambda: run_process(probe, **made).returncode == 0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_part_that_fails_ends_the_process_with_a_clear_line(agent, tmp_path):
    _, made = agent
    changed = made | {
        "GPUPACK_METRICS_PORT": str(free_port()),
        "GPUPACK_PROBE_FILE": str(tmp_path / "gpus.yaml" / "alive"),
    }
    ended = run_process([sys.executable, "-m", "gpupack_agent", "host"], cwd=tmp_path, **changed)
    assert ended.returncode == 1
    assert "CRITICAL gpupack_agent: [Errno" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_in_use_is_an_error(agent, tmp_path):
    _, made = agent
    until(lambda: metrics(made))
    second = run_process([sys.executable, "-m", "gpupack_agent", "host"], cwd=tmp_path, **made)
    assert second.returncode == 1
    assert "Address already in use" in second.stderr
