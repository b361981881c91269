# SPDX-License-Identifier: Apache-2.0
"""The Python API on the cluster: the examples of docs/python.md, and processes that die."""

import json
import os
import signal
import subprocess
import sys

import pytest
import python_page
from harness import STATE, wait_for
from rest_clients import viewer

ALONE = ("this-machine", "pytorch", "tensorflow")
"""Sections of what a cluster does not do from outside its pods."""

EXAMPLES = {
    name: program
    for name, program in python_page.examples()
    if name.rpartition("-")[0] not in ALONE
}

HOLD = """
import sys
from gpupack import TrainingGPUConfig, get_gpu_resource_manager
gpus = get_gpu_resource_manager().allocate_gpu_resources(TrainingGPUConfig(), hold_seconds=60)
print(gpus.allocation_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environ(kube, tmp_path):
    """Return the environment of a program outside the cluster, with a service account's token."""
    with viewer(kube, "gpupack-edit") as token:
        yield {
            "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(kube.kubeconfig),
            "GPUPACK_BACKEND": "cluster",
            "GPUPACK_NAMESPACE": kube.namespace,
            "GPUPACK_TOKEN": token,
        }


def test_an_example_of_the_page_runs_on_the_cluster(kube, environ, tmp_path, subtests):
    assert len(EXAMPLES) >= 4
    for name, program in EXAMPLES.items():
        with subtests.test(name):
            done = python_page.run(program, tmp_path, environ)
            assert done.returncode == 0, done.stderr
            assert done.stdout
            assert done.stderr == ""
    wait_for(lambda: not kube.gpujobs(), seconds=60, what="nothing is held any more")


def test_gpus_of_a_program_that_is_killed_are_held_until_their_time_is_over(
    kube, environ, tmp_path
):
    paths = ":".join(str(python_page.ROOT / each) for each in python_page.SEARCHED)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": ":".join([paths, *filter(None, sys.path)])},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        namespace, _, name = process.stdout.readline().strip().partition("/")
        process.send_signal(signal.SIGKILL)
    assert namespace == kube.namespace
    job = json.loads(kube.insist("get", "gpujob", name, "-o", "json"))
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert job["status"]["phase"] == "Running"


def test_the_error_of_a_program_without_rights_names_them(kube, environ, tmp_path):
    kube.insist("create", "serviceaccount", "no-rights")
    token = kube.insist("create", "token", "no-rights").strip()
    program = EXAMPLES["with-an-event-loop-1"]
    done = python_page.run(program, tmp_path, environ | {"GPUPACK_TOKEN": token})
    assert done.returncode == 1
    assert "gpupack.errors.CallRefused: " in done.stderr
    assert "gpujobs" in done.stderr
