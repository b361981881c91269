# SPDX-License-Identifier: Apache-2.0
"""GPUJobs for tests, most of them run by the judge (judge/judge.py)."""

import dataclasses
import random
from typing import Any

Manifest = dict[str, Any]

JUDGE_IMAGE = "docker.io/gpupack/judge:dev"


@dataclasses.dataclass(frozen=True)
class Judged:
    """Builds GPUJobs whose workers hold a lock per GPU for their life.

    Attributes:
        locks: folder on the nodes in which the lock files lie.
    """

    locks: str

    def job(
        self,
        name: str,
        *,
        workers: int = 1,
        gpus: int = 1,
        seconds: float = 0.5,
        exit_code: int = 0,
        message: str | None = None,
        **spec: Any,
    ) -> Manifest:
        """A GPUJob that holds its GPUs for `seconds` and then ends with `exit_code`."""
        arguments = [str(seconds), str(exit_code), *([] if message is None else [message])]
        container = {
            "name": "worker",
            "image": JUDGE_IMAGE,
            "command": ["python3", "-S", "/judge.py", *arguments],
            "volumeMounts": [{"name": "locks", "mountPath": "/locks"}],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        }
        volume = {
            "name": "locks",
            "hostPath": {"path": self.locks, "type": "DirectoryOrCreate"},
        }
        template = {
            "spec": {
                "containers": [container],
                "volumes": [volume],
                "terminationGracePeriodSeconds": 1,
                "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            }
        }
        return gpujob(name, workers=workers, gpus=gpus, template=template, **spec)

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


def gpujob(name: str, **spec: Any) -> Manifest:
    """A GPUJob with this spec."""
    return {
        "apiVersion": "gpupack.dev/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": {"gpus": 1, **spec},
    }
