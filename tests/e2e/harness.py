# SPDX-License-Identifier: Apache-2.0
"""The cluster suite's access to the cluster: kubectl, as a user has it."""

import dataclasses
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import api_calls
import msgspec
import tenacity
import yaml

from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_worker

ROOT = pathlib.Path(__file__).parents[2]
STATE = ROOT / ".dev"
SYSTEM_NAMESPACE = "gpupack-system"
JOB_LABEL = "gpupack.dev/job"
DEVICES_ANNOTATION = "gpupack.dev/devices"

AWAY = (
    "connection refused",
    "connection reset",
    "was refused - did you specify the right host or port",
    "EOF",
    "TLS handshake timeout",
    "http2: client connection lost",
    "the server is currently unable to handle the request",
    "the server could not find the requested resource",
    "the server doesn't have a resource type",
    "no matches for kind",
    "no endpoints available",
    "(ServiceUnavailable)",
    "not yet ready to handle request",
    "Timeout: request did not complete",
    "etcdserver:",
    "context deadline exceeded",
    "Client.Timeout exceeded",
    "failed to download openapi",
    "storage is (re)initializing",
    "i/o timeout",
)
"""kubectl's messages while the API server or etcd is away or has just returned."""
AWAY_SECONDS = 180

DONE_ALREADY = {"create": "(AlreadyExists)", "delete": "(NotFound)"}
"""The API server's messages, by verb, if a call with a lost answer had succeeded."""

T = TypeVar("T")


class StillWaiting(AssertionError):
    """The awaited state did not occur in time."""


def wait_for(
    look: Callable[[], T | None], *, seconds: float, what: str, every_seconds: float = 0.2
) -> T:
    """Look until a condition is seen, and return it; StillWaiting names what was awaited."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(seconds),
        # Each look starts a kubectl. Later looks are rarer, or waiting would cost more than the
        # workload.
        wait=tenacity.wait_exponential(multiplier=every_seconds, max=5 * every_seconds),
        retry=tenacity.retry_if_result(lambda seen: seen is None or seen is False),
    )
    try:
        return retrying(look)
    except tenacity.RetryError as error:
        raise StillWaiting(f"not within {seconds} s: {what}") from error


def wait_equal(look: Callable[[], T], expected: T, *, seconds: float = 30, what: str) -> None:
    """Wait until this value is seen; StillWaiting names the value that was seen last.

    A phase is Running when the kubelet has started the containers. Their output comes
    later.
    """
    last: T | None = None

    def is_seen() -> bool:
        nonlocal last
        last = look()
        return last == expected

    try:
        wait_for(is_seen, seconds=seconds, what=what)
    except StillWaiting as error:
        raise StillWaiting(f"{error}; expected {expected}, seen {last}") from error


@dataclasses.dataclass(frozen=True)
class Kube:
    """The cluster, seen from one namespace."""

    kubeconfig: pathlib.Path
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess:
        """Run kubectl as the administrator, in this namespace."""
        command = [kubectl_binary(), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace]
        return subprocess.run(
            [*command, *arguments], input=stdin, text=True, capture_output=True, check=False
        )

    def insist(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl until the API server answers; a refusal fails the test.

        An answer can be lost after the call succeeded: on the retry, the API server refuses to
        create what exists, or to delete what is gone.
        """
        lost = False

        def attempt() -> subprocess.CompletedProcess | None:
            nonlocal lost
            done = self.kubectl(*arguments, stdin=stdin)
            away = done.returncode != 0 and any(words in done.stderr for words in AWAY)
            lost = lost or away
            return None if away else done

        done = wait_for(attempt, seconds=AWAY_SECONDS, what=f"an answer to {arguments}")
        was_done = lost and DONE_ALREADY.get(arguments[0], "never") in done.stderr
        assert done.returncode == 0 or was_done, done.stderr
        return done.stdout

    def answers(self) -> bool:
        """Return whether the API server is ready now."""
        return self.kubectl("get", "--raw", "/readyz", "--request-timeout=5s").returncode == 0

    def apply(self, *manifests: dict[str, Any]) -> subprocess.CompletedProcess:
        """Run `kubectl apply` for these manifests; the caller judges the outcome."""
        return self.kubectl("apply", "-f", "-", stdin=stream(manifests))

    def submit(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests that must be accepted."""
        self.insist("apply", "-f", "-", stdin=stream(manifests))

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment or StatefulSet."""
        self.insist("scale", kind, name, f"--replicas={replicas}")

    def delete(self, kind: str, name: str, *flags: str) -> None:
        """Delete one object."""
        done = self.kubectl("delete", kind, name, *flags)
        assert done.returncode == 0, done.stderr

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object."""
        return self._get(kind, name)

    def gpujob(self, name: str) -> dict[str, Any]:
        """Return one GPUJob."""
        return self._get("gpujob", name)

    def gpujobs(self) -> list[dict[str, Any]]:
        """Return all GPUJobs of the namespace."""
        return self._get("gpujobs")["items"]

    def nodes(self) -> list[str]:
        """Return the names of all nodes that take jobs, which excludes kind's control plane."""
        workers = "--selector=!node-role.kubernetes.io/control-plane"
        return [node["metadata"]["name"] for node in self._get("nodes", workers)["items"]]

    def gpunodes(self) -> list[dict[str, Any]]:
        """Return all GPUNodes."""
        return self._get("gpunodes")["items"]

    def pods(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the pods of the namespace, or of one GPUJob."""
        selector = [f"--selector={JOB_LABEL}={job}"] if job else []
        return self._get("pods", *selector)["items"]

    def pods_of_app(self, app: str) -> list[dict[str, Any]]:
        """Return the pods of one Deployment or StatefulSet that count as its own.

        A pod that the kubelet rejected stays as Failed until a user deletes it.
        """
        found = self._get("pods", f"--selector=app={app}")["items"]
        alive = [pod for pod in found if pod["status"].get("phase") in {"Pending", "Running"}]
        return [pod for pod in alive if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, name: str) -> dict[str, Any]:
        """Return one pod."""
        return self._get("pod", name)

    def wait_pod(self, name: str, *phases: str, seconds: float = 60) -> dict[str, Any]:
        """Wait until a pod is in one of these phases, and return it."""

        def look() -> dict[str, Any] | None:
            pod = self.pod(name)
            return pod if pod["status"]["phase"] in phases else None

        try:
            return wait_for(look, seconds=seconds, what=f"pod {name} {' or '.join(phases)}")
        except StillWaiting as error:
            raise StillWaiting(f"{error}; {brief(self.pod(name))}") from error

    def events(self, name: str) -> list[str]:
        """Return the reasons of the events about one object."""
        found = self._get("events", f"--field-selector=involvedObject.name={name}")
        return [event["reason"] for event in found["items"]]

    def event_texts(self) -> str:
        """Return the messages of all events of the namespace."""
        return "\n".join(event["message"] for event in self._get("events")["items"])

    def phase(self, name: str) -> str:
        """Return the phase of a GPUJob, empty before the operator saw it."""
        return self.gpujob(name).get("status", {}).get("phase", "")

    def wait_phase(self, name: str, *phases: str, seconds: float = 60) -> dict[str, Any]:
        """Wait until a GPUJob is in one of these phases, and return it."""

        def look() -> dict[str, Any] | None:
            job = self.gpujob(name)
            return job if job.get("status", {}).get("phase") in phases else None

        try:
            return wait_for(look, seconds=seconds, what=f"{name} in {' or '.join(phases)}")
        except StillWaiting as error:
            raise StillWaiting(f"{error}; {brief(self.gpujob(name))}") from error

    def wait_scale(self, kind: str, name: str, *, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait until a controller has exactly as many Ready pods as it wants; return them."""

        def look() -> list[dict[str, Any]] | None:
            found = self.get(kind, name)
            pods = self.pods_of_app(name)
            wanted = found["spec"]["replicas"]
            return pods if len(pods) == wanted and all(map(is_ready, pods)) else None

        return wait_for(look, seconds=seconds, what=f"{kind} {name} at its scale")

    def wait_reason(self, name: str, reason: str, *, seconds: float = 60) -> dict[str, Any]:
        """Wait until a GPUJob's status gives this reason, and return it."""

        def look() -> dict[str, Any] | None:
            job = self.gpujob(name)
            return job if job.get("status", {}).get("reason") == reason else None

        try:
            return wait_for(look, seconds=seconds, what=f"{name} says {reason}")
        except StillWaiting as error:
            raise StillWaiting(f"{error}; {brief(self.gpujob(name))}") from error

    def finished(self) -> dict[str, dict[str, Any]]:
        """Return the GPUJobs that ended, by name."""
        return {
            job["metadata"]["name"]: job
            for job in self.gpujobs()
            if job.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        }

    def wait_finished(self, names: Iterable[str], *, seconds: float) -> dict[str, dict[str, Any]]:
        """Wait until all these GPUJobs ended, and return them by name."""
        awaited = set(names)

        def look() -> dict[str, dict[str, Any]] | None:
            ended = self.finished()
            return {name: ended[name] for name in awaited} if awaited <= set(ended) else None

        what = f"{len(awaited)} jobs ended"
        # Listing many jobs costs as much as the jobs need themselves.
        return wait_for(look, seconds=seconds, what=what, every_seconds=max(0.2, len(awaited) / 50))

    def _get(self, kind: str, *arguments: str) -> dict[str, Any]:
        calls = api_calls.calls(self.kubeconfig)
        found = calls and calls.get(self.namespace, kind, *arguments)
        return found or json.loads(self.insist("get", kind, *arguments, "-o", "json"))


def brief(found: dict[str, Any]) -> str:
    """Summarize the status of a GPUJob or pod for a CI log."""
    status = found.get("status", {})
    shown = {key: status[key] for key in ("phase", "reason", "message", "nodes") if key in status}
    attempts = [
        " ".join(str(each.get(key, "")) for key in ("outcome", "reason", "message"))
        for each in status.get("attempts", ())
    ]
    containers = [each.get("state") for each in status.get("containerStatuses", ())]
    gate = why_it_waits(found)
    more = {"attempts": attempts, "containers": containers, "waits": gate}
    return f"its status: {shown | {key: value for key, value in more.items() if value}}"


def stream(manifests: Iterable[dict[str, Any]]) -> str:
    """Format manifests as kubectl reads them."""
    return "\n---\n".join(json.dumps(manifest) for manifest in manifests)


def kubectl_binary() -> str:
    """Return the path of the development environment's kubectl."""
    return str(STATE / "bin" / "kubectl")


def condition(job: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return one condition of a GPUJob; empty if it is absent."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


def pod_condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return one condition of a pod; empty if it is absent."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


API_SERVERS_WORDS = "Scheduling is blocked"
"""How a gated pod's condition begins until the queue writes it."""


def why_it_waits(pod: dict[str, Any]) -> str | None:
    """Return the queue's message about a gated pod; None if there is none yet."""
    text: str = pod_condition(pod, "PodScheduled").get("message", "")
    return None if not text or text.startswith(API_SERVERS_WORDS) else text


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is Ready."""
    return pod_condition(pod, "Ready").get("status") == "True"


def annotation(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the devices of a pod's annotation: uuid, percent and memoryMiB of each."""
    return json.loads(pod["metadata"]["annotations"][DEVICES_ANNOTATION])


def annotated_devices(pod: dict[str, Any]) -> list[str]:
    """Return the UUIDs that a pod's annotation names."""
    return [device["uuid"] for device in annotation(pod)]


def unsuccessful(jobs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return those of the GPUJobs that did not succeed, with their status."""
    statuses = {name: job["status"] for name, job in jobs.items()}
    return {
        name: f"{status['phase']}: {status.get('message', '')}"
        for name, status in statuses.items()
        if status["phase"] != "Succeeded"
    }


def placed(job: dict[str, Any]) -> tuple[WorkerPlacement, ...]:
    """Return each worker's place by GPUJob.status.placement, in the workers' order."""
    return by_worker(msgspec.convert(job["status"]["placement"], list[NodePlacement]))


def simulated_memory_mib() -> int:
    """Return the memory of every simulated GPU of the dev cluster."""
    values = yaml.safe_load((ROOT / "charts/gpupack/values-devcluster.yaml").read_text())
    ((group,),) = [entry["devices"] for entry in values["agent"]["simulated"]["nodes"]]
    return group["memoryMiB"]


def cluster_kind() -> str:
    """Return where the suite runs: devcluster or kind."""
    return os.environ.get("CLUSTER", "devcluster")
