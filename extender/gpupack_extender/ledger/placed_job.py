# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with nothing but what the ledger reads, so that hardly anything makes one unreadable.

`gpupack_crds.kinds.GpuJob` was rejected here: its enums refuse an object that a newer release
wrote, and places that the ledger does not see are given away.
"""

from typing import Any, Final

from gpupack_crds import names
from gpupack_crds.gpujob_status import WorkerPlacement
from gpupack_kube import objects
from gpupack_kube.resources import Resource

_NOT_PLACED: Final = frozenset({"Pending", "Suspended", "Succeeded", "Failed"})


class Template(objects.View, frozen=True):
    """The partial pod template; read when CPU and memory are counted."""

    spec: dict[str, Any] | None = None


class Spec(objects.View, frozen=True):
    """Of the spec, what tells CPU, memory and the number of GPUs of a worker."""

    template: Template | None = None
    gpus: int | None = None
    resource_name: str = names.GPU


class Status(objects.View, frozen=True):
    """Of the status, who is placed where."""

    phase: str = "Pending"
    attempt: int = 0
    placement: tuple[WorkerPlacement, ...] = ()

    @property
    def holds_placement(self) -> bool:
        """Whether the places belong to the job; in a phase that is not known they do."""
        return self.phase not in _NOT_PLACED and bool(self.placement)


class PlacedJob(objects.Object, frozen=True):
    """A GPUJob as far as the ledger reads it."""

    spec: Spec = Spec()
    status: Status = Status()

    @property
    def pod_spec(self) -> dict[str, Any]:
        """The partial PodSpec of its template; empty where there is none."""
        return (self.spec.template and self.spec.template.spec) or {}

    @property
    def tickets(self) -> dict[str, int]:
        """What the kubelet counts for a worker whose devices the status does not name."""
        return {self.spec.resource_name: self.spec.gpus} if self.spec.gpus else {}


PLACED_JOBS = Resource(names.API_PREFIX, "gpujobs", PlacedJob)
