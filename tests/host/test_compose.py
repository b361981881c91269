# SPDX-License-Identifier: Apache-2.0
"""apiserver/compose/compose.yaml by podman-compose, with our images and simulated GPUs."""

import json
import os
import pathlib
import subprocess
import time

import host_gpus
import httpx
import pytest
from open_folder import open_folder
from ports import free_port

from gpupack import TrainingGPUConfig

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = "gpupack-test-host"
UP_SECONDS = 60.0


class Machine:
    """Both containers, and the folder of the ledger that this process shares with them."""

    def __init__(self, folder):
        self.ledger = folder / "ledger"
        self.ledger.mkdir()
        self.ledger.chmod(0o1777)
        self.api, self.metrics = free_port(), free_port()
        limits = folder / "containers.conf"
        # Podman asks for more than root may have on hosts that are containers themselves.
        limits.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        )
        self.environ = os.environ | {
            "CONTAINERS_CONF": str(limits),
            "GPUPACK_LEDGER": str(self.ledger),
            "GPUPACK_API_PORT": str(self.api),
            "GPUPACK_METRICS_PORT": str(self.metrics),
        }

    def compose(self, *arguments):
        files = ("compose.yaml", "simulated.yaml")
        named = [part for name in files for part in ("-f", ROOT / "apiserver/compose" / name)]
        return self._run("podman-compose", "-p", PROJECT, *named, *arguments)

    def podman(self, *arguments):
        return self._run("podman", *arguments)

    def container(self, service):
        return f"{PROJECT}_{service}_1"

    def up(self):
        self.compose("up", "-d", "--no-build")
        self.until_healthy()

    def until_healthy(self):
        """As healthchecks say it, which podman runs by itself only under systemd."""
        ends = time.monotonic() + UP_SECONDS
        for service in ("api", "agent"):
            while self._says("podman", "healthcheck", "run", self.container(service)).returncode:
                assert time.monotonic() < ends, self.podman("logs", self.container(service))
                time.sleep(0.5)

    def call(self, method, path, **given):
        token = self.compose("exec", "-T", "api", "python", "-m", "gpupack_apiserver.host", "token")
        url = f"http://127.0.0.1:{self.api}/api/v1/gpu{path}"
        headers = {"Authorization": f"Bearer {token.strip()}"}
        return httpx.request(method, url, headers=headers, timeout=20, **given)

    def _run(self, *command):
        done = self._says(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _says(self, *command):
        return subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def machine():
    with open_folder() as folder:
        made = Machine(folder)
        made.compose("down", "-v")
        made.up()
        yield made
        made.compose("down", "-v")


def held(answer):
    return {uuid for each in answer["gpu_config"]["workers"] for uuid in each["device_uuids"]}


def test_the_page_and_figures_are_there_and_say_that_gpus_are_simulated(machine):
    page = httpx.get(f"http://127.0.0.1:{machine.api}/")
    assert "<title>gpupack" in page.text
    (node,) = machine.call("GET", "/nodes").json()["nodes"]
    assert [each["simulated"] for each in node["devices"]] == [True] * 8
    metrics = httpx.get(f"http://127.0.0.1:{machine.metrics}/metrics").text
    assert metrics.count('health="Healthy",modelName="H100"} 1.0') == 8
    assert httpx.get(f"http://127.0.0.1:{machine.api}/api/v1/gpu/status").status_code == 401


def test_processes_of_the_host_and_callers_share_the_gpus_while_the_api_is_killed(machine):
    with host_gpus.manager(machine.ledger) as library:
        ours = library.allocate_gpu_resources(TrainingGPUConfig(gpu_count=3))
        made = machine.call("POST", "/allocate", json={"gpu_count": 5}).json()
        assert made["success"], made
        assert not held(made) & set(ours.device_uuids)
        held_gpus = machine.call("GET", "/holders").json()["holders"]
        assert {each["uuid"] for each in held_gpus} == held(made) | set(ours.device_uuids)
        machine.podman("kill", machine.container("api"))
        ours.release()
        assert library.get_gpu_status().available_gpus == 3
        machine.podman("start", machine.container("api"))
        machine.until_healthy()
        assert machine.call("GET", "/status").json()["available_gpus"] == 3
        path = f"/allocations/{made['allocation_id']}"
        assert held(machine.call("GET", path).json()) == held(made)
        assert machine.call("DELETE", path).status_code == 204
        assert library.get_gpu_status().available_gpus == 8


@pytest.mark.parametrize("service", ["api", "agent"])
def test_a_container_has_no_rights_and_listens_on_loopback_alone(machine, service):
    found = json.loads(machine.podman("inspect", machine.container(service)))[0]
    pid = found["State"]["Pid"]
    status = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert fields["Uid"].split()[0] == "65532"
    for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert fields["NoNewPrivs"] == "1"
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert not found["HostConfig"]["Privileged"]
    port = machine.api if service == "api" else machine.metrics
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]
