# SPDX-License-Identifier: Apache-2.0
"""How fast gloo is between two workers of one node: with a pod each, and in one pod.

    python benchmarks/gang_bandwidth.py --node NODE [--rounds 3] [--size BYTES]

It needs kubectl, KUBECONFIG and a cluster with gpupack and two free GPUs, simulated or not, on the
node. The ways take turns, since other work on the node changes from minute to minute. Printed:
bus bandwidth and latency of each run, medians, and the ratio of one pod to two.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any, Final

Json = dict[str, Any]

API: Final = "gpupack.dev/v1alpha1"
JOB: Final = "gang-bandwidth"
SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 1.0
ENDED: Final = {"Succeeded", "Failed"}
WAYS: Final = {"two pods": True, "one pod": False}
"""podPerWorker of each."""
FIGURES: Final = {"bus_gb_per_s": "GB/s", "latency_us": "us"}


def gang(node: str, *, pod_per_worker: bool, size_bytes: int) -> Json:
    """Two workers of one node that sum buffers by gloo."""
    spec = {
        "workers": 2,
        "gpus": 1,
        "podPerWorker": pod_per_worker,
        "distributed": {"backend": "gloo"},
        "workload": {"name": "allreduce", "args": [f"--size={size_bytes}"]},
        "template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}},
    }
    return {"apiVersion": API, "kind": "GPUJob", "metadata": {"name": JOB}, "spec": spec}


def measured(job: Json) -> Json:
    """Run a gang and return what its first worker measured.

    Raises:
        RuntimeError: it did not succeed.
    """
    kubectl("delete", "gpujob", JOB, "--ignore-not-found", "--wait")
    kubectl("apply", "-f", "-", text=json.dumps(job))
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        status = json.loads(kubectl("get", "gpujob", JOB, "-o", "json")).get("status", {})
        if status.get("phase") in ENDED:
            break
        time.sleep(PAUSE_SECONDS)
    results = status.get("results", [])
    if status.get("phase") != "Succeeded" or not results:
        raise RuntimeError(f"{JOB}: {status.get('phase')}: {status.get('message')}")
    (place,) = status["placement"]
    if place["node"] != job["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"]:
        raise RuntimeError(f"{JOB} ran on {place['node']}")
    first: Json = results[0]
    return first


def kubectl(*arguments: str, text: str | None = None) -> str:
    """Run kubectl and return what it prints."""
    command = ["kubectl", *arguments]
    done = subprocess.run(  # noqa: S603 - arguments of this file
        command, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def medians(runs: dict[str, list[Json]]) -> dict[str, dict[str, float]]:
    """Return the median of each figure, by way."""
    return {
        way: {name: statistics.median(one[name] for one in of_way) for name in FIGURES}
        for way, of_way in runs.items()
    }


def ratio(middle: dict[str, dict[str, float]], figure: str) -> float:
    """Return how many times two pods' figure one pod's is."""
    return middle["one pod"][figure] / middle["two pods"][figure]


def main() -> int:
    """Measure both ways in turns, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True, help="Name of the node.")
    parser.add_argument("--rounds", type=int, default=3, help="Runs of each way.")
    parser.add_argument("--size", type=int, default=2**24, help="Bytes of the largest buffer.")
    arguments = parser.parse_args()
    runs: dict[str, list[Json]] = {way: [] for way in WAYS}
    for number in range(arguments.rounds):
        for way, pod_per_worker in WAYS.items():
            job = gang(arguments.node, pod_per_worker=pod_per_worker, size_bytes=arguments.size)
            figures = measured(job)["metrics"]
            runs[way].append(figures)
            shown = ", ".join(f"{figures[name]:.3f} {unit}" for name, unit in FIGURES.items())
            print(f"round {number + 1}, {way}: {shown}", flush=True)
    middle = medians(runs)
    for name, unit in FIGURES.items():
        both = ", ".join(f"{way} {middle[way][name]:.3f} {unit}" for way in WAYS)
        print(f"{name}: median {both}; one pod / two pods {ratio(middle, name):.2f}")
    kubectl("delete", "gpujob", JOB, "--ignore-not-found", "--wait=false")
    return 0


if __name__ == "__main__":
    sys.exit(main())
