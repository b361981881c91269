# SPDX-License-Identifier: Apache-2.0
"""Checks of what runs: parts, leaders, certificates, metrics."""

import base64
import binascii
import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.doctor.observed import Observed
from gpupack_cli.doctor.views import Certificates, Part
from gpupack_cli.figures import duration
from gpupack_crds import names

NEEDED: Final = ("gpupack-operator", "gpupack-scheduler")
AGENT: Final = "gpupack-agent"
ISSUER: Final = "gpupack-certificates"
API: Final = "gpupack-api"
OPTIONAL: Final = (ISSUER, "gpupack-cost")
"""Deployments that only some installations have."""
PARTS: Final = "parts"
SOON: Final = dt.timedelta(days=30)
LATE_FACTOR: Final = 2
"""A Lease that was not renewed for twice its duration has no live holder."""

WAITS_FOR_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)


def parts(seen: Observed) -> Iterator[Finding]:
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
            "the REST API is off: what-if, cost and top's single GPUs need it",
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


def _missing(seen: Observed, name: str) -> Finding:
    return failed(
        PARTS,
        f"{name} is not installed in namespace {seen.release.namespace}",
        fix="install the chart there (docs/install.md)",
    )


def _deployment(seen: Observed, part: Part) -> Finding:
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


def _agents(seen: Observed, agents: Part) -> Finding:
    check = PARTS
    wanted, ready = agents.status.desired_number_scheduled, agents.status.number_ready
    see = f"see kubectl -n {seen.release.namespace} get pods -l app.kubernetes.io/component=agent"
    if wanted == 0:
        return failed(
            check, "no node gets an agent", fix="look at agent.nodeSelector and agent.affinity"
        )
    if ready < wanted:
        return failed(check, f"agents are ready on {ready} of {wanted} nodes", fix=see)
    return ok(check, f"agents are ready on all {wanted} nodes")


def pods(seen: Observed) -> Iterator[Finding]:
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
                fix="look at image.registry, image.tag and image.pullSecrets"
                if pull
                else f"see kubectl -n {seen.release.namespace} logs {name} -c {each.name} -p",
            )
    if not problems:
        yield ok(check, f"{len(seen.pods.items)} pods, and none waits for an image or crashes")


def leaders(seen: Observed) -> Iterator[Finding]:
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
                f"{name} has no leader: nothing new is started",
                fix=f"see kubectl -n {seen.release.namespace} logs deployment/{name}",
            )
            continue
        silent = (seen.now - lease.spec.renew_time).total_seconds()
        if silent > LATE_FACTOR * max(lease.spec.lease_duration_seconds, 1):
            yield failed(
                check,
                f"the leader of {name} has been silent for {duration(silent)}",
                fix=f"see kubectl -n {seen.release.namespace} get lease {name} -o yaml, and the "
                f"logs of deployment/{name}",
            )
        else:
            yield ok(check, f"{name} is led by {lease.spec.holder_identity.partition('_')[0]}")


def certificates(seen: Observed) -> Iterator[Finding]:
    """Check that the certificates of the plan API and the REST API do not expire soon."""
    check = "certificates"
    if seen.secrets.refused and not seen.secrets.items:
        yield skipped(check, seen.secrets.refused)
        return
    if not seen.secrets.items:
        yield skipped(check, "no Secret of gpupack's: certificates of your own are not looked at")
        return
    for secret in seen.secrets.items:
        yield _certificate(seen, secret)


def _certificate(seen: Observed, secret: Certificates) -> Finding:
    check, name, now = "certificates", secret.metadata.name, seen.now
    renew = (
        "one that gpupack issues is renewed by itself: see kubectl -n "
        f"{seen.release.namespace} logs deployment/{ISSUER}; renew one of your own (existingSecret)"
    )
    until = _until(secret)
    if until is None:
        return failed(check, f"Secret {name} holds no certificate that can be read", fix=renew)
    left = until - now
    if left <= dt.timedelta():
        return failed(check, f"the certificate in {name} ended on {until:%Y-%m-%d}", fix=renew)
    if left < SOON:
        return warning(check, f"the certificate in {name} ends on {until:%Y-%m-%d}", fix=renew)
    return ok(check, f"the certificate in {name} is good until {until:%Y-%m-%d}")


def _until(secret: Certificates) -> dt.datetime | None:
    """Return when the first of its certificates expires."""
    from cryptography import x509  # noqa: PLC0415 - 0.1 s, only for this check

    ends = []
    for key in ("ca.crt", "tls.crt"):
        try:
            text = base64.b64decode(secret.data.get(key, ""), validate=True)
            found = x509.load_pem_x509_certificates(text) if text else []
        except (binascii.Error, ValueError):
            return None
        ends += [each.not_valid_after_utc for each in found]
    return min(ends, default=None)


def metrics(seen: Observed) -> Iterator[Finding]:
    """Check that the extender's metrics answer; a refusal is an answer."""
    check = "metrics"
    probe = seen.metrics
    if probe.by_part:
        yield ok(check, "the extender's /metrics answers (who scrapes it needs get /metrics)")
    elif probe.status in {403, 404}:
        yield skipped(check, f"they were not asked for: {probe.said}")
    elif seen.leases.refused:
        yield skipped(check, f"who leads, and so has them, is not known: {seen.leases.refused}")
    else:
        yield failed(
            check,
            f"the extender's /metrics does not answer: {probe.said}",
            fix="see the pods of gpupack-scheduler; a NetworkPolicy may keep the API server out, "
            "and it alone, of which this check knows nothing",
        )


def rest(seen: Observed) -> Iterator[Finding]:
    """Check that an enabled REST API knows the cluster's state."""
    check = "REST API"
    if seen.deployments.named(API) is None:
        yield skipped(check, "it is off, or not seen")
    elif seen.rest.status == 200:  # noqa: PLR2004 - of HTTP
        yield ok(check, "it answers, and knows the cluster's state")
    elif seen.rest.status == 403:  # noqa: PLR2004 - of HTTP
        yield skipped(check, f"it was not asked: {seen.rest.said}")
    else:
        yield failed(
            check,
            f"it does not answer: {seen.rest.said}",
            fix=f"see kubectl -n {seen.release.namespace} logs deployment/{API}",
        )


def caller(seen: Observed) -> Iterator[Finding]:
    """Check that the REST API knows the caller; it may accept no client certificates."""
    check = "REST API's caller"
    match seen.caller.status:
        case 0:
            yield skipped(check, f"it was not called: {seen.caller.said or 'it is not seen'}")
        case 401:
            yield warning(
                check,
                f"it does not know you: {seen.caller.said}",
                fix="export GPUPACK_TOKEN=$(kubectl create token ACCOUNT): explain's position, "
                "what-if, top, cost and snapshot need it; chart value "
                "api.clientCertificates.enabled=true lets client certificates do",
            )
        case _:
            yield ok(check, "it knows you")
