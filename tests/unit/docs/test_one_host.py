# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/one-host.md, as its reader runs them; those of containers: tests/host."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ports import free_port
from processes import environment

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/one-host.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMPOSE = ROOT / "apiserver/compose"


def section(title):
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.timeout(120)
def test_the_commands_without_containers_work(tmp_path):
    blocks = [
        block
        for title in ("Without containers", "Calling it")
        for block in BLOCK.findall(section(title))
    ]
    assert len(blocks) == 3
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GPUPACK_HOST_FOLDER": str(tmp_path / "ledger"),
        "GPUPACK_SIMULATED_GPUS": "8xH100",
        "GPUPACK_LISTEN_PORT": str(free_port()),
    }
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=90)
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
    assert shell.returncode == 0, said
    assert '"total_gpus":8' in said
    assert '"CUDA_VISIBLE_DEVICES":"GPU-sim-0,GPU-sim-1"' in said
    assert not list(tmp_path.glob("ledger/*.json"))


def test_containers_have_no_more_rights_than_the_page_says():
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert set(services) == {"api", "agent"}
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges"]
        assert service["user"] == "65532:65532"
        assert service["healthcheck"]
        assert not {"privileged", "cap_add", "ports", "devices"} & set(service)
    assert services["api"]["pid"] == "host"
    assert "pid" not in services["agent"]


@pytest.mark.parametrize("name", ["nvidia.yaml", "simulated.yaml"])
def test_the_gpu_overlay_adds_only_gpus(name):
    services = yaml.safe_load((COMPOSE / name).read_text())["services"]
    assert set(services) == {"api", "agent"}
    for service in services.values():
        assert set(service) <= {"devices", "environment", "volumes"}


def test_every_file_and_variable_that_the_page_names_is_there():
    for name in re.findall(r"apiserver/compose/[\w.-]+\.yaml", PAGE):
        assert (ROOT / name).is_file()
    sources = [
        *ROOT.glob("apiserver/gpupack_apiserver/host/*.py"),
        *ROOT.glob("agent/gpupack_agent/*.py"),
    ]
    sources += [*ROOT.glob("client/gpupack/*.py"), *COMPOSE.glob("*.yaml")]
    known = "\n".join(path.read_text() for path in sources)
    for name in set(re.findall(r"GPUPACK_[A-Z_]+", PAGE)):
        assert name in known, name
