# SPDX-License-Identifier: Apache-2.0
"""What a GPUJob's priority is: a number of its own up to a bound, or a PriorityClass's value.

A class must have preemptionPolicy Never: its pods carry it, so that quotas with a PriorityClass
scope govern it, and kube-scheduler would evict others for single workers of a gang.
"""

import dataclasses

from gpupack_kube.objects import PriorityClass


@dataclasses.dataclass(frozen=True, slots=True)
class PriorityProblem:
    """Why a job is not planned; `reason` is a word for programs."""

    reason: str
    message: str


def priority_of(name: str, found: PriorityClass | None) -> int | PriorityProblem:
    """The priority of a job that names a class; `found` None: there is none of that name."""
    if found is None:
        message = f"spec.priorityClassName: there is no PriorityClass {name}; create it"
        return PriorityProblem("PriorityClassMissing", message)
    if found.preemption_policy != "Never":
        message = (
            f"spec.priorityClassName: pods of PriorityClass {name} evict others, and half a "
            "gang would gain nothing by it; use a class with preemptionPolicy: Never"
        )
        return PriorityProblem("PriorityClassPreempts", message)
    return found.value
