# SPDX-License-Identifier: Apache-2.0
"""What people and programs read."""

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import tenacity

DOCUMENT = pathlib.Path(__file__).parents[4] / "docs/preflight.md"

AGENT = [sys.executable, "-m", "gpupack_agent", "preflight"]


def run(root, *more):
    command = [*AGENT, f"--host-root={root.path}", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_ready_host_exits_with_0(ready):
    done = run(ready)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpu-1, Ubuntu 24.04.3 LTS, kernel 6.8.0\n")
    assert done.stdout.endswith("Ready.\n")


def test_a_pods_result_names_its_node(ready, monkeypatch):
    ready.file("proc/sys/kernel/hostname", "gpupack-preflight-x7k2p\n")
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    assert run(ready).stdout.startswith("gpu-7, Ubuntu 24.04.3 LTS, kernel 6.8.0\n")


def test_one_recommended_change_is_not_several(ready):
    (ready.path / "proc/77/cmdline").unlink()
    assert run(ready).stdout.endswith("Ready; 1 recommended change.\n")


def test_a_host_that_is_not_ready_exits_with_1_and_shows_the_changes(ready):
    ready.containerd("version = 2\n", version="v1.7.27")
    done = run(ready)
    assert done.returncode == 1
    assert "FAILURE  cdi" in done.stdout
    assert "-> set enable_cdi = true" in done.stdout
    assert done.stdout.endswith("Not ready: 1 required and 0 recommended changes.\n")
    assert max(map(len, done.stdout.splitlines())) <= 110


def test_programs_read_json(ready):
    (ready.path / "dev/nvidia-uvm").unlink()
    done = run(ready, "-o", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["passed"], document["host"]) == (1, False, "gpu-1")
    failed = [each for each in document["findings"] if each["status"] == "failure"]
    assert [each["check"] for each in failed] == ["device nodes"]


def test_a_root_that_is_none_is_an_error_of_one_line(tmp_path):
    done = subprocess.run(
        [*AGENT, f"--host-root={tmp_path}/none"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_empty_root_has_no_traceback_either(tmp_path):
    done = subprocess.run(
        [*AGENT, f"--host-root={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("breaks", "passes"), [(False, True), (True, False)])
def test_a_preflight_pod_stays_and_creates_a_file_if_its_host_passed(
    ready, tmp_path, breaks, passes
):
    if breaks:
        (ready.path / "dev/nvidia-uvm").unlink()
    mark = pathlib.Path(tmp_path / "passed")
    command = [*AGENT, f"--host-root={ready.path}", f"--passed-file={mark}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith(("Ready", "Not ready")):
                break
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_delay(5), wait=tenacity.wait_fixed(0.05), reraise=True
        ):
            with attempt:
                assert process.poll() is None
                assert mark.exists() == passes
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_the_document_shows_the_output_for_such_a_host(ready):
    ready.gpu("0000:3b:00.0", "DMA-FQ")
    ready.gpu("0000:5e:00.0", "DMA-FQ")
    runtime = '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    ready.containerd(runtime, version="v1.7.27")
    ready.file("etc/nvidia-container-runtime/config.toml")
    ready.process(5, "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
    (shown,) = re.findall(r"```text\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert run(ready).stdout == shown
