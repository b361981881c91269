# SPDX-License-Identifier: Apache-2.0
"""Workers that are alike: all of a GPUJob, or those of one of its roles."""

import dataclasses

from gpupack_crds.gpujob import Role
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.objects import Json


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerKind:
    """Workers that are alike.

    Attributes:
        job: the GPUJob with what these workers request and run.
        user: their template as written.
        role: their role; None: the job has no roles.
        first: index of the first of them.
    """

    job: GpuJob
    user: Json
    role: Role | None = None
    first: int = 0

    @property
    def name(self) -> str:
        """Return the name of the role; empty: the job has no roles."""
        return self.role.name if self.role else ""
