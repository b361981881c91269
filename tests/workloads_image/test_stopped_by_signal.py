# SPDX-License-Identifier: Apache-2.0
"""Signals to end, sent to workloads that compute: they leave soon, with one line and no process.

Of workloads that start a gang test_allreduce.py has the like, of gpu-manager test_gpu_manager.py.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="sizes are for CPUs")
SIGNALS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
SECONDS = 90
"""From its start to its end."""
WORKLOADS = {
    "burn-in": (["--seconds=600"], "no GPU: computing"),
    "gemm": (["--size=2048"], "no GPU: computing"),
    "inference-load": (["--rate=1", "--seconds=600"], "Errors("),
}
"""Arguments by which each would take minutes, and what it says before."""


@SIGNALS
@pytest.mark.parametrize("name", WORKLOADS)
@no_gpu
def test_a_workload_that_a_signal_stops_prints_one_line(name, number, status):
    arguments, at_work = WORKLOADS[name]
    line = [sys.executable, "-m", "gpupack_workloads", name, *arguments]
    environ = os.environ | {"GPUPACK_RESULT_PATH": os.devnull}
    process = subprocess.Popen(
        line, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    timer = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    assert any(at_work in said for said in process.stderr)
    time.sleep(1)
    process.send_signal(number)
    # Until no process has its standard error open.
    _, errors = process.communicate()
    timer.cancel()
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].endswith(f": stopped by {number.name}")
