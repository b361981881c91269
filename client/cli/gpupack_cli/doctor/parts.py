# SPDX-License-Identifier: Apache-2.0
"""Checks of the running components: replicas, versions, leaders, metrics."""

import re
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.doctor.views import Part
from gpupack_cli.figures import count, duration
from gpupack_crds import names

SCHEDULER: Final = "gpupack-scheduler"
NEEDED: Final = ("gpupack-operator", SCHEDULER)
KUBE_SCHEDULER: Final = "kube-scheduler"
AGENT: Final = "gpupack-agent"
MPS: Final = "gpupack-mps"
"""The DaemonSet of limited shares; an installation without them has none."""
API: Final = "gpupack-api"
OPTIONAL: Final = ("gpupack-certificates", "gpupack-cost")
"""Deployments that only some installations have."""
PARTS: Final = "parts"
LATE_FACTOR: Final = 2
"""A Lease that was not renewed for twice its duration has no live holder."""

_MINOR_OF_TAG: Final = re.compile(r":(?P<tag>v?1\.(?P<minor>\d+)\.[^:@/]+)(@[^@]*)?$")
"""The tag of an image, if it is a version of Kubernetes 1."""
WAITS_FOR_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)


def parts(seen: ClusterState) -> Iterator[Finding]:
    """Check that every part that is installed has all its replicas."""
    check = PARTS
    if refused := seen.deployments.refused or seen.daemon_sets.refused:
        yield skipped(check, refused)
        return
    for name in NEEDED:
        part = seen.deployments.named(name)
        yield _missing(seen, name) if part is None else _deployment(seen, part)
    api = seen.deployments.named(API)
    if api is None:
        yield warning(
            check,
            "the REST API is off: what-if, cost and the single GPUs of top need it",
            fix="set api.enabled=true (docs/rest-api.md)",
        )
    else:
        yield _deployment(seen, api)
    for name in OPTIONAL:
        part = seen.deployments.named(name)
        if part is not None:
            yield _deployment(seen, part)
    agents = seen.daemon_sets.named(AGENT)
    yield _missing(seen, AGENT) if agents is None else _agents(seen, agents)
    mps = seen.daemon_sets.named(MPS)
    if mps is not None:
        yield _mps(seen, mps)


def _missing(seen: ClusterState, name: str) -> Finding:
    return failed(
        PARTS,
        f"{name} is not installed in namespace {seen.release.namespace}",
        fix="install the chart there (docs/install.md)",
    )


def _deployment(seen: ClusterState, part: Part) -> Finding:
    check, name = PARTS, part.metadata.name
    ready, wanted = part.status.ready_replicas, part.spec.replicas
    see = f"see kubectl -n {seen.release.namespace} describe deployment {name}"
    if wanted == 0:
        return failed(check, f"{name} is scaled to 0", fix="scale it up, or upgrade the chart")
    if ready == 0:
        return failed(check, f"none of {wanted} {name} is ready", fix=see)
    if ready < wanted:
        return warning(check, f"{ready} of {wanted} {name} are ready", fix=see)
    return ok(check, f"{ready} of {wanted} {name} are ready")


def _agents(seen: ClusterState, agents: Part) -> Finding:
    check = PARTS
    wanted, ready = agents.status.desired_number_scheduled, agents.status.number_ready
    see = f"see kubectl -n {seen.release.namespace} get pods -l app.kubernetes.io/component=agent"
    if wanted == 0:
        return failed(
            check, "no node gets an agent", fix="check agent.nodeSelector and agent.affinity"
        )
    if ready < wanted:
        return failed(check, f"agents are ready on {ready} of {count(wanted, 'node')}", fix=see)
    return ok(check, f"agents are ready on {ready} of {count(wanted, 'node')}")


def _mps(seen: ClusterState, mps: Part) -> Finding:
    wanted, ready = mps.status.desired_number_scheduled, mps.status.number_ready
    where = f"{ready} of {count(wanted, 'node')}"
    if ready < wanted:
        return failed(
            PARTS,
            f"MPS is ready on {where}: the others get no limited shares",
            fix=f"see kubectl -n {seen.release.namespace} get pods "
            "-l app.kubernetes.io/component=mps -o wide",
        )
    return ok(PARTS, f"MPS is ready on {where}")


def pods(seen: ClusterState) -> Iterator[Finding]:
    """Check that no pod of gpupack waits for an image or keeps crashing."""
    check = "pods"
    if seen.pods.refused:
        yield skipped(check, seen.pods.refused)
        return
    problems = 0
    for pod in seen.pods.items:
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        for each in statuses:
            waiting = each.state.waiting
            if waiting is None or waiting.reason in {"ContainerCreating", "PodInitializing", ""}:
                continue
            problems += 1
            pull = waiting.reason in WAITS_FOR_IMAGE
            name = pod.metadata.name
            yield failed(
                check,
                f"container {each.name} of {name} does not run: {waiting.reason} {waiting.message}",
                fix="check image.registry, image.tag and image.pullSecrets"
                if pull
                else f"see kubectl -n {seen.release.namespace} logs {name} -c {each.name} -p",
            )
    if not problems:
        yield ok(
            check, f"{count(len(seen.pods.items), 'pod')}, and none waits for an image or crashes"
        )


def kube_scheduler(seen: ClusterState) -> Iterator[Finding]:
    """Check that kube-scheduler has the minor version of the API server."""
    check = KUBE_SCHEDULER
    if seen.deployments.refused:
        yield skipped(check, seen.deployments.refused)
        return
    minor = "".join(filter(str.isdigit, seen.server.minor))
    image = _image(seen, SCHEDULER, KUBE_SCHEDULER)
    version = _MINOR_OF_TAG.search(image)
    if version is None or not minor:
        yield skipped(check, f"the tag of its image is no version: {image or 'no image'}")
    elif version["minor"] == minor:
        yield ok(check, f"{version['tag']}, for Kubernetes {seen.server.git_version}")
    else:
        yield warning(
            check,
            f"kube-scheduler is {version['tag']}, and the cluster runs {seen.server.git_version}",
            fix="run `helm upgrade` of the chart again: it takes the cluster's version, or set "
            "scheduler.kubeScheduler.image.tag to it",
        )


def _image(seen: ClusterState, part: str, container: str) -> str:
    found = seen.deployments.named(part)
    containers = found.spec.template.spec.containers if found else ()
    return next((each.image for each in containers if each.name == container), "")


def leaders(seen: ClusterState) -> Iterator[Finding]:
    """Check that operator and scheduler have a live leader."""
    check = "leaders"
    if seen.leases.refused:
        yield skipped(check, seen.leases.refused)
        return
    for name in (names.OPERATOR_LEASE, names.SCHEDULER_LEASE):
        lease = seen.leases.named(name)
        if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
            yield failed(
                check,
                f"{name} has no leader: no job or pod is started",
                fix=f"see kubectl -n {seen.release.namespace} logs deployment/{name} --all-pods "
                "--all-containers",
            )
            continue
        silent = (seen.now - lease.spec.renew_time).total_seconds()
        if silent > LATE_FACTOR * max(lease.spec.lease_duration_seconds, 1):
            yield failed(
                check,
                f"the leader of {name} has not renewed its Lease for {duration(silent)}",
                fix=f"see kubectl -n {seen.release.namespace} get lease {name} -o yaml, and the "
                f"logs of deployment/{name}",
            )
        else:
            yield ok(check, f"{name} is led by {lease.spec.holder_identity.partition('_')[0]}")


def metrics(seen: ClusterState) -> Iterator[Finding]:
    """Check that the extender's metrics answer; a refusal is an answer."""
    check = "metrics"
    probe = seen.metrics
    if probe.by_component:
        yield ok(check, "the extender's /metrics answers (a scraper needs get /metrics)")
    elif probe.status in {403, 404}:
        yield skipped(check, f"they were not read: {probe.detail}")
    elif seen.leases.refused:
        yield skipped(check, f"the leader, which serves them, is not known: {seen.leases.refused}")
    else:
        yield failed(
            check,
            f"the extender's /metrics does not answer: {probe.detail}",
            fix="see the pods of gpupack-scheduler; this check uses the API server's proxy, which "
            "a NetworkPolicy may block while scrapes work",
        )


def rest(seen: ClusterState) -> Iterator[Finding]:
    """Check that an enabled REST API knows the cluster's state."""
    check = "REST API"
    if seen.deployments.refused:
        yield skipped(check, seen.deployments.refused)
    elif seen.deployments.named(API) is None:
        yield skipped(check, "it is off")
    elif seen.rest.status == 200:  # noqa: PLR2004 - of HTTP
        yield ok(check, "it answers, and its data is fresh")
    elif seen.rest.status == 403:  # noqa: PLR2004 - of HTTP
        yield skipped(check, f"it was not called: {seen.rest.detail}")
    else:
        yield failed(
            check,
            f"it does not answer: {seen.rest.detail}",
            fix=f"see kubectl -n {seen.release.namespace} logs deployment/{API} --all-pods",
        )


def caller(seen: ClusterState) -> Iterator[Finding]:
    """Check that the REST API knows the caller; it may accept no client certificates."""
    check = "REST API's caller"
    match seen.caller.status:
        case 0:
            yield skipped(check, f"it was not called: {seen.caller.detail or 'it was not found'}")
        case 401:
            yield warning(
                check,
                f"it does not accept your credentials: {seen.caller.detail}",
                fix="export GPUPACK_TOKEN=$(kubectl create token ACCOUNT): explain's position, "
                "what-if, top, cost and snapshot need it; with chart value "
                "api.clientCertificates.enabled=true client certificates suffice",
            )
        case _:
            yield ok(check, "it accepts your credentials")
