# SPDX-License-Identifier: Apache-2.0
"""A worker's pod, and the container of it that is the job: the one that requests the GPUs."""

import dataclasses

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_kube.objects import Pod


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod of a GPUJob.

    Attributes:
        pod: as it was last seen.
        resource: name by which the job requests its GPUs.
    """

    pod: Pod
    resource: str

    @classmethod
    def of(cls, pod: Pod, spec: GpuJobSpec) -> "WorkerPod":
        """A pod of a job with this spec."""
        return cls(pod, spec.gpu_resource)

    @property
    def container(self) -> str:
        """The name of the container that requests the GPUs, as the operator knows it.

        Where several do, or none, it is `worker`, and without one the first.
        """
        found = self.pod.spec.containers
        asking = [each.name for each in found if self.resource in each.resources.limits]
        if len(asking) == 1:
            return asking[0]
        named = [each.name for each in found]
        return names.WORKER_CONTAINER if names.WORKER_CONTAINER in named or not named else named[0]

    @property
    def index(self) -> int:
        """Which worker of its job it is; those of extra workers have the label, too."""
        text = self.pod.metadata.labels.get(names.INDEX_LABEL, "")
        return int(text) if text.isdecimal() else 0

    @property
    def attempt(self) -> int:
        """Of which attempt it is."""
        text = self.pod.metadata.labels.get(names.ATTEMPT_LABEL, "")
        return int(text) if text.isdecimal() else 0

    @property
    def exit_status(self) -> int | None:
        """What its worker ended with; None: it has not."""
        for each in self.pod.status.container_statuses:
            if each.name == self.container and each.state.terminated is not None:
                return each.state.terminated.exit_code
        return None

    @property
    def ended(self) -> bool:
        """Whether its worker will print nothing more."""
        return self.pod.finished or self.exit_status is not None
