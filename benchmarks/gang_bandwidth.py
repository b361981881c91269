# SPDX-License-Identifier: Apache-2.0
"""Measures gloo and Open MPI between two workers of one node: with a pod each, and in one pod.

    python benchmarks/gang_bandwidth.py --node NODE [--backend mpi] [--rounds 3] [--json FILE]

It needs kubectl, KUBECONFIG and a cluster with gpupack and two free GPUs, simulated or not, on the
node. The ways take turns, since other work on the node changes from minute to minute. Printed:
the figures of each run, medians, and the ratio of one pod to two. A file that is there keeps what
it has of other backends.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

API: Final = "gpupack.dev/v1beta1"
JOB: Final = "gang-bandwidth"
WORKER: Final = "worker"
SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 1.0
ENDED: Final = {"Succeeded", "Failed"}
NONE: Final[Mapping[str, str]] = {}


@dataclasses.dataclass(frozen=True)
class Way:
    """One layout of a gang's workers.

    Attributes:
        pod_per_worker: whether each worker has a pod.
        variables: environment of their containers.
    """

    pod_per_worker: bool
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Backend:
    """One library to measure.

    Attributes:
        workload: name of the workload.
        figures: names of its metrics, with their units.
        ways: layouts by name; the others are compared with the first.
    """

    workload: str
    figures: Mapping[str, str]
    ways: Mapping[str, Way]


TWO_PODS: Final = "two pods"
ONE_POD: Final = "one pod"
BACKENDS: Final = {
    "gloo": Backend(
        "allreduce",
        {"bus_gb_per_s": "GB/s", "latency_us": "us"},
        {TWO_PODS: Way(pod_per_worker=True), ONE_POD: Way(pod_per_worker=False)},
    ),
    "mpi": Backend(
        "mpi",
        {"ring_gb_per_s": "GB/s", "allreduce_bus_gb_per_s": "GB/s", "latency_us": "us"},
        {
            TWO_PODS: Way(pod_per_worker=True),
            ONE_POD: Way(pod_per_worker=False),
            "one pod, TCP": Way(pod_per_worker=False, variables={"OMPI_MCA_btl": "self,tcp"}),
        },
    ),
}


def gang(
    node: str, backend: str, way: Way, *, size_bytes: int, variables: Mapping[str, str] = NONE
) -> Json:
    """Return a gang of two workers of one node; `variables` are added to those of the way."""
    all_of = {**variables, **way.variables}
    env = [{"name": name, "value": value} for name, value in all_of.items()]
    pod: Json = {"nodeSelector": {"kubernetes.io/hostname": node}}
    if env:
        pod["containers"] = [{"name": WORKER, "env": env}]
    spec = {
        "workers": 2,
        "gpus": 1,
        "podPerWorker": way.pod_per_worker,
        "distributed": {"backend": backend},
        "workload": {"name": BACKENDS[backend].workload, "args": [f"--size={size_bytes}"]},
        "template": {"spec": pod},
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
    first: Json = results[0]["metrics"]
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


def summary(runs: Mapping[str, list[Json]], figures: Mapping[str, str]) -> Json:
    """Return the runs' figures, the median of each, and the ratio of each way to the first."""
    kept = {way: [{name: one[name] for name in figures} for one in of] for way, of in runs.items()}
    middle = {
        way: {name: statistics.median(one[name] for one in of) for name in figures}
        for way, of in kept.items()
    }
    first, *others = middle
    ratios = {
        way: {name: round(middle[way][name] / middle[first][name], 3) for name in figures}
        for way in others
    }
    return {"runs": kept, "medians": middle, f"ratio_to_{first.replace(' ', '_')}": ratios}


def written(path: pathlib.Path, backend: str, found: Json) -> None:
    """Add what was found to a report."""
    report = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(report | {backend: found}, indent=2, sort_keys=True) + "\n")


def shown(figures: Json, units: Mapping[str, str]) -> str:
    """Return figures in one line."""
    return ", ".join(f"{name} {figures[name]:.3f} {unit}" for name, unit in units.items())


def main() -> int:
    """Measure all layouts in turns, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True, help="Name of the node.")
    parser.add_argument("--backend", choices=BACKENDS, default="gloo", help="Library to measure.")
    parser.add_argument("--rounds", type=int, default=3, help="Runs of each way.")
    parser.add_argument("--size", type=int, default=2**24, help="Bytes of the largest buffer.")
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Environment of all workers, such as OMPI_MCA_mpi_yield_when_idle=1 on few cores.",
    )
    parser.add_argument("--json", type=pathlib.Path, help="Report to add the figures to.")
    arguments = parser.parse_args()
    backend = BACKENDS[arguments.backend]
    variables = dict(each.split("=", 1) for each in arguments.variable)
    runs: dict[str, list[Json]] = {way: [] for way in backend.ways}
    for number in range(arguments.rounds):
        for name, way in backend.ways.items():
            job = gang(
                arguments.node,
                arguments.backend,
                way,
                size_bytes=arguments.size,
                variables=variables,
            )
            runs[name].append(measured(job))
            print(
                f"round {number + 1}, {name}: {shown(runs[name][-1], backend.figures)}", flush=True
            )
        found = summary(runs, backend.figures)
        if arguments.json is not None:
            about = {"size_bytes": arguments.size, "variables": variables}
            written(arguments.json, arguments.backend, {**about, **found})
    for name, middle in found["medians"].items():
        print(f"median, {name}: {shown(middle, backend.figures)}")
    kubectl("delete", "gpujob", JOB, "--ignore-not-found", "--wait=false")
    return 0


if __name__ == "__main__":
    sys.exit(main())
