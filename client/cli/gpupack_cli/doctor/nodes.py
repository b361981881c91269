# SPDX-License-Identifier: Apache-2.0
"""Checks of nodes: the agents' reports and health; and of quotas."""

from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.figures import count
from gpupack_crds import names
from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_crds.kinds import GpuCohort, GpuNode, GpuQuota

MAX_NAMES: Final = 5
MAX_UNHEALTHY: Final = 20
LATE_FACTOR: Final = 2


def reports(seen: ClusterState) -> Iterator[Finding]:
    """Check that every GPUNode has a node, and an agent that is alive and reads its GPUs."""
    check = "GPUNodes"
    if seen.gpu_nodes.refused:
        yield skipped(check, seen.gpu_nodes.refused)
        return
    if not seen.gpu_nodes.items:
        yield failed(
            check,
            "no agent has reported any GPU",
            fix=f"see kubectl -n {seen.release.namespace} logs daemonset/gpupack-agent --all-pods",
        )
        return
    found = dict[str, list[str]]()
    for node in seen.gpu_nodes.items:
        for what in _report_problems(node, seen):
            found.setdefault(what, []).append(node.metadata.name)
    for what, names_ in found.items():
        yield failed(
            check,
            f"{first_names(names_)}: {what}",
            fix=_REPORT_FIXES[what].format(namespace=seen.release.namespace),
        )
    if not found:
        gpus = count(sum(each.status.gpus for each in seen.gpu_nodes.items), "GPU")
        yield ok(
            check, f"{count(len(seen.gpu_nodes.items), 'node')} with {gpus}, all reports are fresh"
        )


_LOGS: Final = "see the logs of its agent: kubectl -n {namespace} get pods -o wide"
_REPORT_FIXES: Final = {
    "the Node no longer exists": "delete the GPUNode of that name: kubectl delete gpunode NAME",
    "its agent has never renewed its Lease": _LOGS,
    "its agent does not renew its Lease": _LOGS,
    "its driver does not answer": "run nvidia-smi there; drain the node, and reboot it",
}


def _report_problems(node: GpuNode, seen: ClusterState) -> Iterator[str]:
    """Yield the keys of `_REPORT_FIXES` that apply to the node."""
    name = node.metadata.name
    if not seen.nodes.refused and seen.nodes.named(name) is None:
        yield "the Node no longer exists"
        return
    if node.status.stale_since:
        yield "its driver does not answer"
    if seen.leases.refused:
        return
    lease = seen.leases.named(names.heartbeat_lease(name))
    if lease is None or lease.spec.renew_time is None:
        yield "its agent has never renewed its Lease"
        return
    silent = (seen.now - lease.spec.renew_time).total_seconds()
    if silent > LATE_FACTOR * max(lease.spec.lease_duration_seconds, 1):
        yield "its agent does not renew its Lease"


def health(seen: ClusterState) -> Iterator[Finding]:
    """Yield unhealthy GPUs, by node; maintenance is intended and left out."""
    check = "GPU health"
    if seen.gpu_nodes.refused:
        yield skipped(check, seen.gpu_nodes.refused)
        return
    unhealthy = [
        (node.metadata.name, device)
        for node in seen.gpu_nodes.items
        for device in node.status.devices
        if device.health != "Healthy"
    ]
    for name, device in unhealthy[:MAX_UNHEALTHY]:
        say = failed if device.health == "Failed" else warning
        yield say(
            check,
            f"GPU {device.index} of {name} is {device.health}: {device.cause}",
            fix="see docs/architecture.md, Health of a GPU; after the repair delete its GPUNode",
        )
    if len(unhealthy) > MAX_UNHEALTHY:
        yield warning(
            check,
            f"{len(unhealthy) - MAX_UNHEALTHY} more GPUs are not healthy",
            fix="see `gpupack nodes -o wide` and `gpupack gpu show NODE`",
        )
    if not unhealthy:
        yield ok(check, "all GPUs are healthy")


def quotas(seen: ClusterState) -> Iterator[Finding]:
    """Yield quotas of which a part has no effect, or that the cluster cannot meet."""
    check = "quotas"
    if refused := seen.quotas.refused or seen.cohorts.refused:
        yield skipped(check, refused)
        return
    broken = 0
    items: tuple[GpuQuota | GpuCohort, ...] = (*seen.quotas.items, *seen.cohorts.items)
    for each in items:
        if each.status.problem:
            broken += 1
            owner = each.metadata.namespace or f"cohort {each.metadata.name}"
            yield warning(
                check,
                f"a part of the quota of {owner} has no effect: {each.status.problem}",
                fix=_fix_of_quota(each, {cohort.metadata.name for cohort in seen.cohorts.items}),
            )
    lacking = dict[str, list[str]]()
    for each in items:
        if each.status.capacity_warning:
            owner = each.metadata.namespace or f"cohort {each.metadata.name}"
            lacking.setdefault(each.status.capacity_warning, []).append(owner)
    for why, owners in lacking.items():
        yield warning(
            check,
            f"the cluster cannot meet the quota of {first_names(owners)}: {why}",
            fix="correct spec.gpus, or add nodes; if nodes come later, nothing needs a change "
            "(docs/queueing/configuration.md)",
        )
    if not broken and not lacking:
        number = len(seen.quotas.items)
        counted = f"{count(number, 'quota')}, and no part of a spec is ignored"
        yield ok(check, counted if number else "there is no quota")


def _fix_of_quota(item: GpuQuota | GpuCohort, cohorts: set[str]) -> str:
    """Return the fix of a quota: a spec may be right, and the cohort that it names missing."""
    named = item.spec.cohort if isinstance(item, GpuQuota) else item.spec.parent
    if not named or named in cohorts or named == CLUSTER_NAME:
        return "correct its spec (docs/queueing/configuration.md)"
    field = "spec.cohort" if isinstance(item, GpuQuota) else "spec.parent"
    there = first_names(sorted(cohorts)) if cohorts else "none"
    return f"create GPUCohort {named}, or set {field} to one of the existing: {there}"


def first_names(names_: list[str]) -> str:
    """Return the first few names, and the number of others."""
    more = f" and {len(names_) - MAX_NAMES} more" if len(names_) > MAX_NAMES else ""
    return ", ".join(names_[:MAX_NAMES]) + more
