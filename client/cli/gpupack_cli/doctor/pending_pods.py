# SPDX-License-Identifier: Apache-2.0
"""Checks of pods that wait forever: they use the wrong scheduler or resource name."""

from collections.abc import Iterator

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped
from gpupack_cli.doctor.nodes import first_names
from gpupack_crds import names, withheld
from gpupack_kubeclient import objects


def wrong_scheduler(seen: ClusterState) -> Iterator[Finding]:
    """Yield pods that request gpupack's GPUs from another scheduler."""
    check = "pods of other schedulers"
    if seen.pending.refused:
        yield skipped(check, seen.pending.refused)
        return
    lost = [
        _name(pod)
        for pod in _of_other_schedulers(seen)
        if any(name.startswith(f"{names.GROUP}/") for name in _requested(pod))
    ]
    if lost:
        yield failed(
            check,
            f"{first_names(lost)} request gpupack's GPUs and name another scheduler",
            fix=f"set spec.schedulerName: {names.SCHEDULER_NAME} in them",
        )
    else:
        yield ok(check, "no pod with gpupack's GPUs names another scheduler")


def withheld_resources(seen: ClusterState) -> Iterator[Finding]:
    """Yield pods that request GPUs by the name of a plugin that no node has."""
    check = "pods of other plugins"
    if refused := seen.pending.refused or seen.nodes.refused or seen.gpu_nodes.refused:
        yield skipped(check, refused)
        return
    found = False
    for resource in withheld.withheld(seen.nodes.items, seen.gpu_nodes.items):
        lost = [pod for pod in _without_node(seen) if resource in _requested(pod)]
        if lost:
            found = True
            yield failed(
                check,
                f"{first_names([*map(_name, lost)])} request {resource}, which no node offers: "
                "gpupack assigns the GPUs",
                fix=withheld.fix(
                    resource,
                    str(_requested(lost[0])[resource]),
                    scheduler=_common_scheduler(lost),
                ),
            )
    if not found:
        yield ok(check, "no pod requests GPUs of a plugin that no node has")


def _of_other_schedulers(seen: ClusterState) -> Iterator[objects.Pod]:
    """Return pods without a node that gpupack's scheduler does not handle."""
    return (pod for pod in _without_node(seen) if pod.spec.scheduler_name != names.SCHEDULER_NAME)


def _without_node(seen: ClusterState) -> Iterator[objects.Pod]:
    return (pod for pod in seen.pending.items if not pod.spec.node_name)


def _common_scheduler(pods: list[objects.Pod]) -> str:
    """Return the common scheduler of the pods; empty: they have several."""
    found = {pod.spec.scheduler_name for pod in pods}
    return found.pop() if len(found) == 1 else ""


def _requested(pod: objects.Pod) -> dict[str, str | int | float]:
    """Return the requests of a pod's containers, by name; of several containers the last one's."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    found: dict[str, str | int | float] = {}
    for each in containers:
        found |= each.resources.requests | each.resources.limits
    return found


def _name(pod: objects.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
