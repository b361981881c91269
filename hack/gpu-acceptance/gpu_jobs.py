# SPDX-License-Identifier: Apache-2.0
"""Jobs of `make demo-gpu` and the checks of their results."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpupack_devcluster.kubectl import Kubectl, wait_until

Json = dict[str, Any]

IMAGE = "docker.io/gpupack/workloads:dev"
VIEW = Path(__file__).with_name("gpu_view.py")
JOB_SECONDS = 150
API = "gpupack.dev/v1beta1"
CONTROL_MINOR = 255  # of /dev/nvidiactl, which is no GPU
SHARE_RESOURCE = "gpupack.dev/gpu-share"
INDEX = "batch.kubernetes.io/job-completion-index"
SHARED = "gpupack.dev/workers"
LOAD = Path(__file__).with_name("gpu_load.py")
SHARE_SECONDS = 4
# Percent and memory; together less than one GPU of 80 GB.
SHARES = {"share-a": (60, "40Gi"), "share-b": (30, "20Gi")}


class Broken(Exception):
    """Error: a check of the demo failed; the text has the expectation and the observation."""


def gpu_job(name: str, spec: Json) -> Json:
    """Return a GPUJob of the default namespace."""
    return {"apiVersion": API, "kind": "GPUJob", "metadata": {"name": name}, "spec": spec}


def matmul() -> Json:
    """Return a job with matrix products on one GPU; without a GPU it fails."""
    workload = {"name": "matmul", "args": ["--require-gpu"]}
    return gpu_job("matmul", {"gpus": 1, "workload": workload})


def shares() -> list[Json]:
    """Return two jobs whose shares fit on one GPU together."""
    container = {
        "name": "worker",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", LOAD.read_text(), "gemm", str(SHARE_SECONDS)],
    }
    template = {"spec": {"containers": [container]}}
    return [
        gpu_job(name, {"share": {"percent": percent, "memory": memory}, "template": template})
        for name, (percent, memory) in SHARES.items()
    ]


def viewers(workers: int, name: str = "viewers", **spec: Any) -> Json:
    """Return workers with one GPU each that print the GPUs they see, as root."""
    container = {
        "name": "worker",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", VIEW.read_text()],
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["MKNOD"]}},
    }
    template = {"spec": {"containers": [container]}}
    return gpu_job(name, {"workers": workers, "gpus": 1, "template": template, **spec})


def stranger() -> Json:
    """Return a pod without a GPU request, as root."""
    container = {
        "name": "stranger",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", VIEW.read_text()],
        "securityContext": {"runAsUser": 0},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}


class Bench:
    """Runs jobs and reads their results."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def gpus(self) -> list[Json]:
        """Return the devices of the one GPUNode, once the agent has written it."""
        (node,) = self._list("gpunodes")
        devices: list[Json] = node["status"]["devices"]
        return devices

    def driver(self) -> str:
        """Return the driver's version as the agent reports it."""
        (node,) = self._list("gpunodes")
        return str(node["status"].get("driverVersion", ""))

    def offers_shares(self) -> bool:
        """Return whether the node offers shares of its GPUs."""
        (node,) = self._list("nodes")
        return int(node["status"]["allocatable"].get(SHARE_RESOURCE, "0")) > 0

    def apply(self, *manifests: Json) -> None:
        """Create objects after deleting those of an earlier run."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self._kubectl("delete", "--ignore-not-found", "--timeout=60s", "-f", "-", text_input=text)
        self._kubectl("apply", "-f", "-", text_input=text)

    def create(self, *manifests: Json) -> None:
        """Create missing objects; the others stay."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self._kubectl("apply", "-f", "-", text_input=text)

    def delete(self, *what: str) -> None:
        """Delete objects and wait until they are gone."""
        self._kubectl("delete", *what, "--ignore-not-found", "--timeout=60s")

    def until(self, holds: Callable[[], object], *, what: str, seconds: float = 30.0) -> None:
        """Wait until a condition holds; a missing object counts as not holding."""

        def is_so() -> bool:
            try:
                return bool(holds())
            except (KeyError, ValueError):
                return False

        wait_until(is_so, what=what, seconds=seconds, pause_seconds=0.25)

    def job(self, name: str) -> Json:
        """Return a GPUJob."""
        found: Json = json.loads(self._kubectl("get", "gpujob", name, "-o", "json"))
        return found

    def decided(self) -> Json:
        """Return the scheduler's decisions about the one GPUNode."""
        (node,) = self._list("gpunodes")
        spec: Json = node.get("spec", {})
        return spec

    def measured(self, gpu: str) -> Json:
        """Return the burn-in result of a GPU of the one GPUNode; {} if none has ended."""
        (node,) = self._list("gpunodes")
        found = (each for each in node["status"].get("measured", []) if each["gpu"] == gpu)
        return dict(next(found, {}))

    def finished(self, *names: str) -> list[Json]:
        """Wait until jobs have ended; raise Broken if one has not succeeded."""
        jobs = [self._ended("gpujob", name) for name in names]
        for job in jobs:
            if phase(job) != "Succeeded":
                status = job.get("status", {})
                raise Broken(f"{job['metadata']['name']}: {phase(job)} ({status.get('message')})")
        return jobs

    def view(self, pod: str, *container: str) -> Json:
        """Wait for the end of a viewer's container and return its output."""
        ended = self._ended("pod", pod)
        text = self._kubectl("logs", pod, *container)
        if phase(ended) != "Succeeded":
            raise Broken(f"pod {pod}: {phase(ended)}: {text[-800:]}")
        seen: Json = json.loads(text.strip().splitlines()[-1])
        return seen

    def running(self, *pods: str) -> None:
        """Wait until the containers of these pods run."""
        for name in pods:
            self._kubectl("wait", "pod", name, "--for=condition=Ready", f"--timeout={JOB_SECONDS}s")

    def ended(self, pod: str) -> Json:
        """Wait for the end of a pod and return it."""
        return self._ended("pod", pod)

    def events(self, pod: str) -> list[Json]:
        """Return the events of a pod."""
        said = self._list("events.v1.events.k8s.io")
        return [each for each in said if each["regarding"].get("name") == pod]

    def pods_of(self, job: str) -> dict[int, tuple[str, ...]]:
        """Return each worker's pod, and its container if several workers share the pod."""
        pods = self._list("pods", "--selector", f"gpupack.dev/job={job}")
        return {index: where for pod in pods for index, where in workers_in(pod).items()}

    def all_pods(self) -> list[Json]:
        """Return the pods of all namespaces."""
        return self._list("pods", "--all-namespaces")

    def span_of(self, job: str) -> tuple[str, str]:
        """Return start and end of the container of a job's one pod."""
        (span,) = self.spans_of(job)
        return span

    def spans_of(self, job: str) -> list[tuple[str, str]]:
        """Return start and end of each container of a job's pods."""
        pods = self._list("pods", "--selector", f"gpupack.dev/job={job}")
        states = [
            container["state"]["terminated"]
            for pod in pods
            for container in pod["status"]["containerStatuses"]
        ]
        return [(ended["startedAt"], ended["finishedAt"]) for ended in states]

    def _ended(self, kind: str, name: str) -> Json:
        last: Json = {}

        def is_over() -> bool:
            last.update(json.loads(self._kubectl("get", kind, name, "-o", "json")))
            return phase(last) in {"Succeeded", "Failed"}

        wait_until(is_over, what=f"end of {kind} {name}", seconds=JOB_SECONDS, pause_seconds=0.25)
        return last

    def _list(self, *what: str) -> list[Json]:
        items: list[Json] = json.loads(self._kubectl("get", *what, "-o", "json"))["items"]
        return items


def workers_in(pod: Json) -> dict[int, tuple[str, ...]]:
    """Return the workers of a pod by index: pod name, and container name if there are several."""
    name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
    containers = [each["name"] for each in pod["spec"]["containers"]]
    if SHARED not in pod["metadata"].get("annotations", {}):
        return {int(labels[INDEX]): (name,)}
    return {int(each.rpartition("-")[2]): (name, each) for each in containers}


def phase(thing: Json) -> str:
    """Return the phase of a pod or GPUJob."""
    return str(thing.get("status", {}).get("phase", ""))


def check_stranger(bench: Bench) -> Json:
    """Check that a container without a GPU finds none."""
    seen = bench.view("stranger")
    found = {key: seen[key] for key in ("nodes", "opened", "driver", "cuda", "nvml") if seen[key]}
    if found or seen["uid"] != 0:
        raise Broken(f"a container without GPUs, as user {seen['uid']}, finds {found}")
    return {"check": "a container that was given no GPU sees none", "seen": seen}


def views(bench: Bench, job: str) -> dict[int, Json]:
    """Return the output of each worker of a job."""
    return {worker: bench.view(*pod) for worker, pod in bench.pods_of(job).items()}


def check_viewers(bench: Bench, gpus: list[Json]) -> Json:
    """Check that containers with one GPU each see only that one, as placed."""
    (job,) = bench.finished("viewers")
    (here,) = job["status"]["placement"]
    placed = dict(enumerate(here["gpus"]))
    seen = views(bench, "viewers")
    for worker, uuid in placed.items():
        shown = {tuple(seen[worker][key]) for key in ("cuda", "nvml")} | {
            (seen[worker]["variable"],)
        }
        if shown != {(uuid,)}:
            raise Broken(f"worker {worker} was given {uuid} and sees {seen[worker]}")
        if uuid not in seen[worker]["smi"]:
            raise Broken(f"worker {worker}: nvidia-smi says {seen[worker]['smi']!r}")
        if len([minor for minor in seen[worker]["opened"] if minor != CONTROL_MINOR]) != 1:
            raise Broken(f"worker {worker} can open other GPUs: {seen[worker]['opened']}")
    if set(placed.values()) != {gpu["uuid"] for gpu in gpus}:
        raise Broken(f"{len(gpus)} workers were given {sorted(placed.values())}")
    what = f"each of {len(gpus)} containers that were given one GPU sees exactly that one"
    return {"check": what, "seen": seen}


def check_matmul(bench: Bench, gpus: list[Json]) -> Json:
    """Check that the status has TFLOP/s that were measured on a GPU and verified."""
    (job,) = bench.finished("matmul")
    return {"check": "matmul on one GPU", **measured(job, gpus)}


def check_shares(bench: Bench) -> Json:
    """Check that two shares run on one GPU at the same time."""
    jobs = bench.finished(*SHARES)
    uuids = {uuid for job in jobs for here in job["status"]["placement"] for uuid in here["gpus"]}
    if len(uuids) != 1:
        raise Broken(f"two shares that fit one GPU were put on {sorted(uuids)}")
    spans = [bench.span_of(name) for name in SHARES]
    if max(start for start, _ in spans) > min(end for _, end in spans):
        raise Broken(f"the shares ran one after the other: {spans}")
    seen = {name: bench.view(*pod) for name in SHARES for pod in bench.pods_of(name).values()}
    what = "two shares (60% and 30%, cooperative) on one GPU, containers alive at the same time"
    return {"check": what, "figures": seen}


def measured(job: Json, gpus: list[Json]) -> Json:
    """Return the results in a job's status; raise Broken if they are not of real GPUs."""
    results = job["status"]["results"]
    models = {gpu["model"] for gpu in gpus}
    for result in results:
        device = result["metrics"].get("device")
        if result.get("simulated") or not result.get("verified") or device not in models:
            raise Broken(f"{job['metadata']['name']} did not measure a GPU: {result}")
    return {"headline": results[0]["headline"], "metrics": results[0]["metrics"]}


def run_all(bench: Bench, timed: Callable[[str, Callable[[], Json]], Json]) -> Iterator[Json]:
    """Run all checks, one after the other if they need the same GPU; yield their results."""
    gpus = bench.gpus()
    bench.apply(stranger(), matmul())
    shared, several = bench.offers_shares(), len(gpus) > 1
    if shared and several:
        bench.apply(*shares())
    yield timed("matmul", lambda: check_matmul(bench, gpus))
    yield timed("no GPU", lambda: check_stranger(bench))
    if shared:
        if not several:
            bench.apply(*shares())
        yield timed("shares", lambda: check_shares(bench))
    bench.apply(viewers(len(gpus)))
    yield timed("one GPU each", lambda: check_viewers(bench, gpus))


def wait_for_gpus(bench: Bench, seconds: float) -> list[Json]:
    """Wait for the agent's first report."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return bench.gpus()
        except (ValueError, KeyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
