# SPDX-License-Identifier: Apache-2.0
"""Measures the time from a fault until all workers of the job run again.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/recovery.py [--runs 10] [--json FILE]

On the cluster of `make cluster-up`, with a GPUJob of two workers and nothing else. In turns

process  a worker's process is killed
pod      a worker's pod is deleted, without a grace period
power    the node of the workers is switched off; the workers run elsewhere before it is on again

Measured in seconds, by this program's clock, from the fault on: until the status says that the
attempt has ended, until the next one has its places, until all its workers run. Prints medians and
the largest, and fails where a median is beyond its bar: 10 s, and 30 s for the node.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from harness import STATE, Kube, wait_for
from manifests import Judged
from node_faults import powered_off
from pausing import kill_in_pod

from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths

NAMESPACE, JOB = "recovery", "train"
SIMULATED_MEMORY_MIB = 81_559
BARS = {"process": 10.0, "pod": 10.0, "power": 30.0}
STEPS = ("ended", "admitted", "running")
LOOK_SECONDS = 0.05
TIMEOUT_SECONDS = 180.0

Fault = Callable[[], contextlib.AbstractContextManager[None]]


class Bench:
    """One cluster and the job whose workers fail repeatedly."""

    def __init__(self) -> None:
        self.cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
        self.kube = Kube(self.cluster.kubeconfig, NAMESPACE)
        self._judged = Judged(locks=str(STATE / "locks"), gpu_memory_mib=SIMULATED_MEMORY_MIB)

    def start(self) -> None:
        """Start the job; both workers run on the first node."""
        job = self._judged.job(JOB, workers=2, seconds=3600, maxRestarts=1)
        first, *others = self.cluster.nodes()
        for node in others:
            self.kube.kubectl("cordon", node)
        try:
            self.kube.submit(job)
            found = self.kube.wait_phase(JOB, "Running")
        finally:
            for node in others:
                self.kube.kubectl("uncordon", node)
        if found["status"]["nodes"] != first:
            raise SystemExit(f"the workers are on {found['status']['nodes']}, not on {first}")

    def recovers(self, fault: Fault) -> dict[str, float]:
        """Return the seconds from the fault to each step."""
        self.start()
        with fault():
            began = time.monotonic()
            steps: dict[str, float] = {}
            while "running" not in steps:
                status = self.kube.gpujob(JOB)["status"]
                now = time.monotonic() - began
                reached = _reached(status)
                steps |= {step: now for step in STEPS if step in reached and step not in steps}
                if now > TIMEOUT_SECONDS:
                    raise SystemExit(f"not running after {TIMEOUT_SECONDS:.0f} s: {status}")
                time.sleep(LOOK_SECONDS)
        self.kube.insist("delete", "gpujob", JOB)
        wait_for(lambda: not self.kube.pods(JOB), seconds=90, what="all pods are gone")
        return steps

    @contextlib.contextmanager
    def process(self) -> Iterator[None]:
        """Kill a worker's processes with SIGKILL."""
        pod = self.kube.pods(JOB)[0]
        kill_in_pod(self.cluster, pod, "judge.py")
        yield

    @contextlib.contextmanager
    def pod(self) -> Iterator[None]:
        """Delete a worker's pod without a grace period."""
        name = self.kube.pods(JOB)[0]["metadata"]["name"]
        self.kube.delete("pod", name, "--grace-period=1", "--wait=false")
        yield

    @contextlib.contextmanager
    def power(self) -> Iterator[None]:
        """Switch the workers' node off until they run elsewhere."""
        with powered_off(self.cluster, self.kube.pods(JOB)[0]["spec"]["nodeName"]):
            yield


def _reached(status: dict[str, Any]) -> set[str]:
    """Return the steps that the status has reached since the first attempt."""
    attempts = status.get("attempts", [])
    reached = {"ended"} if attempts and attempts[0].get("finishedAt") else set()
    if len(attempts) == 1:
        return reached
    return reached | {"admitted"} | ({"running"} if status["phase"] == "Running" else set())


def measure(runs: int) -> dict[str, Any]:
    """Return median and maximum of each fault, in seconds."""
    bench = Bench()
    bench.kube.kubectl("create", "namespace", NAMESPACE)
    faults: dict[str, Fault] = {
        "process": bench.process,
        "pod": bench.pod,
        "power": bench.power,
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in faults}
    try:
        for _ in range(runs):
            for name, fault in faults.items():
                found[name].append(bench.recovers(fault))
                print(name, found[name][-1], file=sys.stderr, flush=True)
    finally:
        bench.kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    return {
        name: {
            step: {
                "median": round(median(each[step] for each in some), 1),
                "largest": round(max(each[step] for each in some), 1),
            }
            for step in STEPS
        }
        for name, some in found.items()
    } | {"runs": runs}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    found = measure(arguments.runs)
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(f"{text}\n")
    late = [name for name, bar in BARS.items() if found[name]["running"]["median"] > bar]
    if late:
        sys.exit(f"beyond the bar: {', '.join(late)}")


if __name__ == "__main__":
    main()
