# SPDX-License-Identifier: Apache-2.0
"""Tenants that share the dev cluster.

A test reads as quotas, running jobs and new jobs, and then as placements, reasons to wait and
reasons of preemptions.

Nodes are n1, n2 … in the order in which they come to be used. What is said of a workload is one
word for each of its workers or pods.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness import JOB_LABEL, Kube, StillWaiting, placed, pod_condition, wait_for
from manifests import Manifest, on_node

from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.names import CHECKPOINTED_AT_ANNOTATION

SECONDS = 60
LASTS_SECONDS = 2
"""So long nothing may change after what is expected has come."""

State = dict[str, dict[str, str]]


class World:
    """Mutable. Tenants are namespaces of one cohort whose jobs may be preempted at once.

    Args:
        others: makes a namespace.
        order: of the cohort.
    """

    def __init__(self, others: Callable[[str], Kube], *, order: str = "BestEffort") -> None:
        self._others, self._order = others, order
        self._tenants: dict[str, Kube] = {}
        self._cohort = ""
        self._names: dict[str, str] = {}
        """Those that tests have for nodes, by their own."""

    def promise(self, **nominal: int) -> None:
        """Make these tenants; each is promised so many GPUs of any model."""
        self._tenants = {tenant: self._others(tenant) for tenant in nominal}
        first = next(iter(self._tenants.values()))
        self._cohort = first.namespace
        first.submit(
            {
                "apiVersion": "gpupack.dev/v1beta1",
                "kind": "GPUCohort",
                "metadata": {"name": self._cohort},
                "spec": {"minRunSeconds": 0, "order": self._order},
            }
        )
        for tenant, gpus in nominal.items():
            self._tenants[tenant].submit(
                {
                    "apiVersion": "gpupack.dev/v1beta1",
                    "kind": "GPUQuota",
                    "metadata": {"name": "default"},
                    "spec": {"cohort": self._cohort, "gpus": [{"model": "*", "nominal": gpus}]},
                }
            )

    def end(self) -> None:
        """Leave nothing of the cluster's."""
        for kube in list(self._tenants.values())[:1]:
            kube.kubectl("delete", "gpucohort", self._cohort)

    def runs(self, tenant: str, workload: Manifest, node: str, *, bound: bool = False) -> None:
        """Submit it, and wait until it runs, which must be there.

        Args:
            tenant: its namespace.
            workload: of one worker or pod.
            node: where.
            bound: it may go nowhere else.
        """
        name = workload["metadata"]["name"]
        self.submit(tenant, on_node(workload, self._called(tenant, node)) if bound else workload)
        where = self.wait_until_runs(tenant, name)
        assert where == node, f"{name} runs on {where}"

    def wait_until_runs(self, tenant: str, name: str, *, seconds: float = SECONDS) -> str:
        """Wait until a workload runs; return where."""
        return wait_for(
            lambda: self._seen_of(tenant)["runs"].get(name),
            seconds=seconds,
            what=f"{name} runs",
            every_seconds=0.1,
        )

    def submit(self, tenant: str, workload: Manifest) -> None:
        """Submit it."""
        self._tenants[tenant].submit(workload)

    def tenant(self, name: str) -> Kube:
        """Return the namespace of a tenant."""
        return self._tenants[name]

    def saves(self, tenant: str, job: str, when: str) -> None:
        """Annotate a GPUJob with the time of its last checkpoint."""
        annotation = f"{CHECKPOINTED_AT_ANNOTATION}={when}"
        self._tenants[tenant].insist("annotate", "--overwrite", "gpujob", job, annotation)

    def cancel(self, tenant: str, job: str) -> None:
        """Delete a GPUJob."""
        self._tenants[tenant].delete("gpujob", job, "--wait=false")

    def comes_to(
        self, *, runs: dict[str, str], waits: dict[str, str], stopped: dict[str, str]
    ) -> None:
        """Wait until the state matches and nothing more changes.

        Args:
            runs: the nodes of running workloads.
            waits: the reasons of pending workloads.
            stopped: the reasons of preemptions, one for each.
        """
        expected = {"runs": runs, "waits": waits, "stopped": stopped}
        with contextlib.suppress(StillWaiting):
            wait_for(lambda: self.seen() == expected, seconds=SECONDS, what="what is expected")
        self._shows(expected)
        time.sleep(LASTS_SECONDS)
        self._shows(expected)

    def _shows(self, expected: State) -> None:
        seen = self.seen()
        assert seen == expected, f"expected {expected}\nseen     {seen}"

    def seen(self) -> State:
        """Return the nodes, the reasons to wait, and the reasons of preemptions."""
        return self._seen_of(*self._tenants)

    def _seen_of(self, *tenants: str) -> State:
        found: dict[str, dict[str, list[str]]] = {"runs": {}, "waits": {}, "stopped": {}}
        for kube in (self._tenants[tenant] for tenant in tenants):
            every = json.loads(kube.insist("get", "gpujobs,pods,events", "--output=json"))["items"]
            for kind, name, word in (said for each in every for said in self._said(each)):
                found[kind].setdefault(name, []).append(word)
        return {
            kind: {name: " ".join(sorted(words)) for name, words in of.items()}
            for kind, of in found.items()
        }

    def _said(self, each: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        match each["kind"]:
            case "GPUJob":
                yield from self._of_job(each)
            case "Pod" if JOB_LABEL not in each["metadata"].get("labels", {}):
                yield from self._of_pod(each)
            case "Event" if (
                each["involvedObject"]["kind"] == "Pod" and each["reason"] in PREEMPTION_TEXTS
            ):
                yield "stopped", workload_of(each["involvedObject"]["name"]), each["reason"]

    def _of_job(self, job: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        name, status = job["metadata"]["name"], job.get("status", {})
        if status.get("phase") == "Running":
            for worker in placed(job):
                yield "runs", name, self._short(worker.node)
        if status.get("phase") == "Pending":
            yield "waits", name, status.get("reason", "")
        for attempt in status.get("attempts", ()):
            if attempt.get("outcome") == "Preempted":
                yield "stopped", name, attempt["reason"]

    def _of_pod(self, pod: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        name, phase = workload_of(pod["metadata"]["name"]), pod["status"]["phase"]
        if "deletionTimestamp" in pod["metadata"]:
            return
        if phase == "Running":
            yield "runs", name, self._short(pod["spec"]["nodeName"])
        if phase == "Pending" and "nodeName" not in pod["spec"]:
            yield "waits", name, pod_condition(pod, "PodScheduled").get("reason", "")

    def _short(self, node: str) -> str:
        return self._names.setdefault(node, f"n{len(self._names) + 1}")

    def _called(self, tenant: str, short: str) -> str:
        """The node of this name, or one without a name."""
        nodes = self._tenants[tenant].nodes()
        return next(node for node in nodes if self._names.get(node, short) == short)


def workload_of(pod: str) -> str:
    """A Deployment's name from that of its pod; tests call none with a dash."""
    return pod.partition("-")[0]
