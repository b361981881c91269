# SPDX-License-Identifier: Apache-2.0
"""Pods after admission with which an attempt was planned: one, or one for each role."""

from collections.abc import Mapping

from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, PlannedPod, RoleStatus

PlannedPods = Mapping[str, PlannedPod | None]
"""Pods by name of the role; without a name: of all workers."""

ALL_WORKERS = ""


def planned_pods(status: GpuJobStatus) -> PlannedPods:
    """Return the planned pods of a status."""
    if status.roles:
        return {role.name: role.planned_pod for role in status.roles}
    return {ALL_WORKERS: status.planned_pod}


def with_planned_pods(status: GpuJobStatus, pods: PlannedPods) -> GpuJobStatus:
    """Return the status with these planned pods in place of those before."""
    known = {role.name: role for role in status.roles}
    roles = tuple(
        structs.replace(known.get(name) or RoleStatus(name=name), planned_pod=pod)
        for name, pod in pods.items()
        if name != ALL_WORKERS
    )
    return structs.replace(status, planned_pod=pods.get(ALL_WORKERS), roles=roles)
