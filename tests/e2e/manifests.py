# SPDX-License-Identifier: Apache-2.0
"""What tests apply; most of it is run by the judge (judge/judge.py)."""

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

Manifest = dict[str, Any]

JUDGE_IMAGE = "docker.io/gpupack/judge:dev"
AGENT_IMAGE = "docker.io/gpupack/agent:dev"
WORKLOADS_TEST_IMAGE = "docker.io/gpupack/workloads-test:dev"
UNTIL_TERM = "term"
"""A duration for the judge: hold until SIGTERM."""


class Share(NamedTuple):
    """Part of one GPU."""

    percent: int
    memory_mib: int


@dataclasses.dataclass(frozen=True)
class Judged:
    """Builds workloads whose containers hold a lock per GPU for their life.

    Attributes:
        locks: folder on the nodes in which the lock files lie.
        gpu_memory_mib: what every simulated GPU has, for the judge to hold shares to.
    """

    locks: str
    gpu_memory_mib: int

    def job(
        self,
        name: str,
        *,
        workers: int = 1,
        gpus: int = 1,
        share: Share | None = None,
        seconds: float = 0.5,
        exit_code: int = 0,
        message: str | None = None,
        may: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Manifest:
        """A GPUJob that holds its GPUs, or a share, for `seconds`; it ends with `exit_code`.

        `may`: what its containers may be given, as the judge reads it (JUDGE_IDS).
        """
        arguments = [str(seconds), str(exit_code), *([] if message is None else [message])]
        template = {"spec": self._pod(self._container("worker", arguments, share, may=may))}
        size: dict[str, Any] = {"gpus": gpus} if share is None else {"share": asked_of_a_job(share)}
        return gpujob(name, workers=workers, template=template, **size, **spec)

    def pod(
        self,
        name: str,
        *,
        gpus: int = 1,
        share: Share | None = None,
        seconds: float | str = UNTIL_TERM,
        **spec: Any,
    ) -> Manifest:
        """A pod of its own."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never"} | self._plain(gpus, share, seconds) | spec,
        }

    def deployment(
        self,
        name: str,
        *,
        replicas: int = 1,
        gpus: int = 1,
        share: Share | None = None,
        linger_seconds: float = 0,
        asked: Mapping[str, str] | None = None,
        may: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Manifest:
        """A Deployment whose pods hold what they were given until SIGTERM, and a while longer.

        `asked`: other limits than those of GPUs and shares. `may`: as of jobs.
        """
        pod = self._plain(gpus, share, UNTIL_TERM, linger_seconds, asked=asked, may=may)
        return controller("Deployment", name, pod, replicas=replicas, **spec)

    def stateful_set(
        self,
        name: str,
        *,
        replicas: int = 1,
        gpus: int = 1,
        share: Share | None = None,
        **spec: Any,
    ) -> Manifest:
        """A StatefulSet whose pods hold what they were given until SIGTERM."""
        pod = self._plain(gpus, share, UNTIL_TERM)
        return controller(
            "StatefulSet", name, pod, replicas=replicas, **{"serviceName": name} | spec
        )

    def storm(self, *, jobs: int, seed: int) -> list[Manifest]:
        """Jobs of 1 to 4 workers of 1 to 4 GPUs each."""
        chance = random.Random(seed)
        return [
            self.job(
                f"storm-{index}",
                workers=chance.randint(1, 4),
                gpus=chance.randint(1, 4),
                seconds=round(chance.uniform(0.2, 1.0), 2),
            )
            for index in range(jobs)
        ]

    def _plain(
        self,
        gpus: int,
        share: Share | None,
        seconds: float | str,
        linger_seconds: float = 0,
        *,
        asked: Mapping[str, str] | None = None,
        may: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The spec of a pod that asks by its limits."""
        container = self._container("judge", [str(seconds)], share, linger_seconds, may=may)
        container["resources"] = {"limits": asked or limits(gpus, share)}
        grace = math.ceil(linger_seconds) + 5
        return self._pod(container) | {
            "schedulerName": "gpupack",
            "terminationGracePeriodSeconds": grace,
        }

    def _container(
        self,
        name: str,
        arguments: list[str],
        share: Share | None,
        linger_seconds: float = 0,
        *,
        may: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        environment = {
            "JUDGE_IDS": "" if may is None else json.dumps(may),
            "JUDGE_SHARE": f"{share.percent}/{share.memory_mib}" if share else "",
            "JUDGE_GPU_MEMORY_MIB": str(self.gpu_memory_mib),
            "JUDGE_LINGER_SECONDS": str(linger_seconds),
        }
        node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        return {
            "name": name,
            "image": JUDGE_IMAGE,
            "command": ["python3", "-S", "/judge.py", *arguments],
            "volumeMounts": [{"name": "locks", "mountPath": "/locks"}],
            "env": [node, *({"name": key, "value": value} for key, value in environment.items())],
        }

    def _pod(self, container: dict[str, Any]) -> dict[str, Any]:
        locks = {"path": self.locks, "type": "DirectoryOrCreate"}
        return {
            "containers": [container],
            "volumes": [{"name": "locks", "hostPath": locks}],
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        }


def gpujob(name: str, **spec: Any) -> Manifest:
    """A GPUJob with this spec."""
    size = {} if "share" in spec else {"gpus": 1}
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": {**size, **spec},
    }


def on_node(manifest: Manifest, node: str) -> Manifest:
    """Return the pod or GPUJob for one node alone."""
    spec = manifest["spec"]
    pod = spec if manifest["kind"] == "Pod" else spec["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    return manifest


def controller(kind: str, name: str, pod: dict[str, Any], **spec: Any) -> Manifest:
    """A Deployment or StatefulSet of such pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


def asked_of_a_job(share: Share) -> dict[str, Any]:
    """A share as a GPUJob asks for it."""
    return {"percent": share.percent, "memory": f"{share.memory_mib}Mi"}


def limits(gpus: int, share: Share | None) -> dict[str, str]:
    """GPUs or a share as a container asks for them."""
    if share is None:
        return {"gpupack.dev/gpu": str(gpus)}
    return {
        "gpupack.dev/gpu-share": "1",
        "gpupack.dev/gpu-percent": str(share.percent),
        "gpupack.dev/gpu-memory": f"{share.memory_mib}Mi",
    }
