# SPDX-License-Identifier: Apache-2.0
"""The priority of a GPUJob: a number up to a limit, or the value of a PriorityClass.

A class must have preemptionPolicy Never. Its pods carry it, so that quotas with a PriorityClass
scope apply to them, and with another policy kube-scheduler would preempt pods for single workers of
a gang.
"""

import dataclasses

from gpupack_kubeclient.objects import PriorityClass


@dataclasses.dataclass(frozen=True, slots=True)
class PriorityProblem:
    """The reason why a job is not planned; `reason` is a CamelCase word for programs."""

    reason: str
    message: str


def priority_of(name: str, found: PriorityClass | None) -> int | PriorityProblem:
    """Return the priority of a job that names a class; `found` None: there is no such class."""
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
