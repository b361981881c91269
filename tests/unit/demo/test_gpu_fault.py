# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
import urllib.request

import gpu_exporter
import gpu_fault
import pytest
import tenacity
from gpu_jobs import Broken

from gpupack_agent.dcgm import fields
from gpupack_httpserver import scraped

GPUS = ("GPU-a", "GPU-b")


class Bench:
    """A cluster in which the GPU fails as soon as the exporter's replacement runs."""

    def __init__(self, *, gpus=GPUS, outcome="Infrastructure", next_gpu="GPU-b", burn_in="Passed"):
        self.uuids, self.outcome, self.next_gpu = gpus, outcome, next_gpu
        self.burn_in = burn_in
        self.struck, self.deleted = False, []

    def gpus(self):
        return [{"uuid": uuid} for uuid in self.uuids]

    def apply(self, *_):
        pass

    def create(self, namespace, pod):
        self.struck = pod["metadata"]["namespace"] == namespace["metadata"]["name"]

    def delete(self, *what):
        self.deleted.append(what)
        self.struck = self.struck and what[0] != "gpunode"

    def measured(self, gpu):
        return {"gpu": gpu, "outcome": self.burn_in, "tflops": 600.0}

    def until(self, holds, *, what, seconds=0):
        assert holds(), what

    def decided(self):
        return {"quarantine": [{"gpu": "GPU-a", "phase": "Quarantined"}] if self.struck else []}

    def job(self, _):
        placed = [{"node": "a", "gpus": ["GPU-a"]}]
        if not self.struck:
            return {"status": {"phase": "Running", "placement": placed}}
        attempts = [{"outcome": self.outcome, "reason": "GpuFailed"}]
        status = {"phase": "Pending", "attempts": attempts, "message": "waits"}
        if len(self.uuids) > 1:
            status |= {"attempt": 2, "placement": [{"node": "a", "gpus": [self.next_gpu]}]}
        return {"status": status}

    def finished(self, _):
        return [{"status": {"placement": [{"node": "a", "gpus": [self.next_gpu]}]}}]


@pytest.mark.parametrize(
    ("gpus", "said"), [(GPUS, ("elsewhere", "GPU-b")), (GPUS[:1], ("message", "waits"))]
)
def test_a_job_leaves_a_failed_gpu_and_continues_or_waits(gpus, said):
    killed, bench = [], Bench(gpus=gpus)
    seen = gpu_fault.check_fault(bench, kill_agent=lambda: killed.append(1))["figures"]
    key, value = said
    assert seen[key] == value
    assert seen["quarantine"]["phase"] == "Quarantined"
    assert (seen["burn-in"]["outcome"], seen["burn-in"]["tflops"]) == ("Passed", 600.0)
    assert (killed, bench.deleted[-1]) == ([1], ("gpunode", "--all"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "Failed"}, "ended the attempt"),
        ({"next_gpu": "GPU-a"}, "is in quarantine"),
        ({"burn_in": "Failed"}, "the burn-in of a sound GPU"),
    ],
)
def test_an_attempt_that_fails_or_a_job_that_returns_to_the_gpu_fails_the_check(changes, words):
    with pytest.raises(Broken, match=words):
        gpu_fault.check_fault(Bench(**changes), kill_agent=lambda: None)


def test_the_agent_reads_the_xid_from_the_stand_in():
    command = [sys.executable, gpu_exporter.__file__, "GPU-a", "79"]
    url = f"http://127.0.0.1:{gpu_exporter.PORT}/metrics"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for attempt in tenacity.Retrying(
                stop=tenacity.stop_after_delay(20), wait=tenacity.wait_fixed(0.1)
            ):
                with attempt, urllib.request.urlopen(url, timeout=5) as response:
                    text = response.read().decode()
        finally:
            process.kill()
    assert scraped.figures(text, fields.NAMES) == {"GPU-a": {fields.XIDS.dcgm: 79.0}}
