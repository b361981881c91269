# SPDX-License-Identifier: Apache-2.0
"""What workers said last can be read after their pods are gone, whatever their container's name."""

import os
import pathlib
import subprocess
import sys

import pytest
from harness import wait_for
from manifests import JUDGE_IMAGE, gpujob, on_node

SECONDS = 90
"""For what takes a few seconds where nothing else runs."""
PROGRAM = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("step 1", flush=True)
time.sleep(600)
"""


@pytest.fixture
def logs(kube):
    """`gpupack logs train`, as the administrator."""
    command = pathlib.Path(sys.executable).parent / "gpupack"
    environ = {"HOME": "/nonexistent", "PATH": os.environ["PATH"]}
    environ |= {"KUBECONFIG": str(kube.kubeconfig)}

    def run(*arguments):
        given = [command, "logs", "train", "-n", kube.namespace, *arguments]
        return subprocess.run(
            given, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.mark.parametrize("pod_per_worker", [True, False], ids=["separate pods", "one pod"])
def test_the_last_lines_of_a_suspended_job_are_shown_and_go_with_it(kube, logs, pod_per_worker):
    container = {"name": "trainer", "image": JUDGE_IMAGE, "command": ["python3", "-c", PROGRAM]}
    template = {"spec": {"containers": [container]}}
    job = gpujob("train", workers=2, podPerWorker=pod_per_worker, template=template)
    kube.submit(on_node(job, "gpupack-1"))
    kube.wait_phase("train", "Running")
    wait_for(
        lambda: sorted(logs().stdout.splitlines()) == ["[0] step 1", "[1] step 1"],
        seconds=SECONDS,
        what="both workers have printed",
    )
    assert logs("--worker", "1").stdout == "step 1\n"
    kube.insist("patch", "gj", "train", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    name = f"gpupack-log-{kube.gpujob('train')['metadata']['uid']}"
    saved = ("get", "configmap", name)
    wait_for(lambda: kube.kubectl(*saved).returncode == 0, seconds=SECONDS, what="the log is saved")
    lines = ["[0] step 1", "[0] saved", "[1] step 1", "[1] saved"]
    for asked in ((), ("--attempt", "1")):
        done = logs(*asked)
        assert (done.returncode, done.stdout.splitlines()) == (0, lines), done.stderr
        assert "attempt 1 was stopped" in done.stderr
    other = logs("--attempt", "2")
    assert (other.returncode, other.stdout) == (66, "")
    kube.delete("gj", "train")
    wait_for(
        lambda: kube.kubectl(*saved).returncode != 0, seconds=SECONDS, what="it goes with the job"
    )
