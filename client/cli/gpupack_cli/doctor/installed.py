# SPDX-License-Identifier: Apache-2.0
"""Checks of what the chart installs: kinds, policies, a class, versions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.figures import count
from gpupack_crds import generate, names

UPGRADE: Final = "upgrade the chart with crds.install=true, or apply crds/*.yaml of its release"
REINSTALL: Final = "run `helm upgrade` of the chart again"

OLDEST_MINOR: Final = 34
"""Oldest supported minor version of Kubernetes 1: docs/install.md."""

REQUIRED_POLICIES: Final = (
    "gpupack-agents",
    "gpupack-checkpoints",
    "gpupack-jobs",
    "gpupack-mpi-keys",
    "gpupack-operator",
    "gpupack-operator-pods",
    "gpupack-scheduler",
    "gpupack-scheduler-nodes",
    "gpupack-users",
)
OPTIONAL_POLICIES: Final = {
    "gpupack-devices": "admission.protectDevices",
    "gpupack-pods": "admission.checkPods",
    "gpupack-pod-changes": "admission.checkPods",
    "gpupack-pod-sharing": "admission.checkPods",
    "gpupack-ephemeral-containers": "admission.checkPods",
    "gpupack-hosts": "admission.protectHosts.enabled",
    "gpupack-host-annotations": "admission.protectHosts.enabled",
    "gpupack-withheld": "admission.warnWithheld",
    "gpupack-workloads": "admission.warnWorkloads",
}
"""Policies that a value of the chart can leave out."""

_KINDS: Final = (generate.gpujob, generate.gpunode, generate.gpuquota, generate.gpucohort)


def kubernetes_version(seen: ClusterState) -> Iterator[Finding]:
    """Check that the API server's version is supported."""
    check = "kubernetes version"
    minor = "".join(filter(str.isdigit, seen.server.minor))
    if not minor:
        yield skipped(check, f"unknown version of the API server: {seen.server.git_version!r}")
    elif int(minor) < OLDEST_MINOR:
        yield failed(
            check,
            f"the cluster runs {seen.server.git_version}",
            fix=f"gpupack needs Kubernetes 1.{OLDEST_MINOR} or newer (docs/install.md)",
        )
    else:
        yield ok(check, f"Kubernetes {seen.server.git_version}")


def kinds(seen: ClusterState) -> Iterator[Finding]:
    """Check that the kinds exist, are established, and have the fields that this command knows."""
    check = "kinds (CRDs)"
    if seen.crds.refused and not seen.crds.items:
        yield skipped(check, seen.crds.refused)
        return
    problems = 0
    for build in _KINDS:
        wanted = build()
        finding = _kind(seen, wanted)
        problems += finding is not None
        if finding is not None:
            yield finding
    if not problems:
        yield ok(check, f"{len(_KINDS)} kinds of {names.API_VERSION}, the same as in this command")


def _kind(seen: ClusterState, wanted: Mapping[str, Any]) -> Finding | None:
    check, name = "kinds (CRDs)", wanted["metadata"]["name"]
    crd = seen.crds.named(name)
    if crd is None:
        return failed(check, f"{name} is not installed", fix=UPGRADE)
    version = next((v for v in crd.spec.versions if v.name == names.VERSION and v.served), None)
    if version is None:
        return failed(check, f"{name} is not served as {names.VERSION}", fix=UPGRADE)
    if any(c.type == "Established" and c.status != "True" for c in crd.status.conditions):
        return failed(check, f"{name} is not established", fix=f"see kubectl describe crd {name}")
    ours = set(_fields(wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    theirs = set(_fields(version.schema.get("openAPIV3Schema", {})))
    if lacking := sorted(ours - theirs):
        return failed(
            check,
            f"{name} is older than this command: it lacks {_some(lacking)}",
            fix=UPGRADE,
        )
    if unknown := sorted(theirs - ours):
        return warning(
            check,
            f"{name} is newer than this command, which does not know {_some(unknown)}",
            fix="upgrade this command: pip install --upgrade gpupack-cli",
        )
    return None


def admission(seen: ClusterState) -> Iterator[Finding]:
    """Check that the policies exist and are bound; report those that a value turned off."""
    check = "admission policies"
    if refused := seen.policies.refused or seen.bindings.refused:
        yield skipped(check, refused)
        return
    there = {each.metadata.name: each for each in seen.policies.items}
    bound = {each.spec.policy_name for each in seen.bindings.items}
    problems = 0
    for name in (*REQUIRED_POLICIES, *OPTIONAL_POLICIES):
        value = OPTIONAL_POLICIES.get(name)
        if name not in there and value:
            problems += 1
            yield warning(
                check,
                f"policy {name} is off",
                fix=f"set {value}=true, unless another policy engine enforces the same "
                "(docs/security.md)",
            )
        elif name not in there:
            problems += 1
            yield failed(check, f"policy {name} is missing", fix=REINSTALL)
        elif name not in bound:
            problems += 1
            yield failed(check, f"policy {name} has no binding and no effect", fix=REINSTALL)
        elif there[name].status.type_checking.expression_warnings:
            problems += 1
            first = there[name].status.type_checking.expression_warnings[0]
            yield warning(
                check,
                f"the API server reports a problem in policy {name}: {first.warning}",
                fix="upgrade gpupack to a release for this version of Kubernetes",
            )
    if not problems:
        yield ok(
            check, f"{len(REQUIRED_POLICIES) + len(OPTIONAL_POLICIES)} policies exist and are bound"
        )


def webhooks(seen: ClusterState) -> Iterator[Finding]:
    """Check that no webhook refuses pods or GPUJobs while its Service is gone.

    gpupack itself has no webhook.
    """
    check = "webhooks"
    if seen.webhooks.refused:
        yield skipped(check, seen.webhooks.refused)
        return
    away = [
        hook for hook, there in seen.webhooks.items if not there and _blocks_gpupack(hook.rules)
    ]
    for hook in away:
        yield failed(
            check,
            f"webhook {hook.name} refuses pods or GPUJobs, since its Service is gone",
            fix="reinstall its program, or delete its webhook configuration",
        )
    if not away:
        yield ok(check, "no webhook without a Service refuses pods or GPUJobs")


def _blocks_gpupack(rules: tuple[Any, ...]) -> bool:
    ours = {"pods", "jobs", "gpujobs", "gpunodes", "bindings", "pods/binding", "*", "*/*", "pods/*"}
    return any(ours & set(rule.resources) for rule in rules)


def priority_class(seen: ClusterState) -> Iterator[Finding]:
    """Check that the workers' class exists, and lets no worker preempt pods."""
    check = "priority class"
    if seen.priority_classes.refused:
        yield skipped(check, seen.priority_classes.refused)
        return
    found = seen.priority_classes.named("gpupack-worker")
    if found is None:
        yield failed(
            check, "PriorityClass gpupack-worker is missing: no worker can start", fix=REINSTALL
        )
    elif found.preemption_policy != "Never":
        yield failed(
            check,
            f"PriorityClass gpupack-worker has preemptionPolicy {found.preemption_policy}",
            fix=f"delete it, and {REINSTALL}",
        )
    else:
        yield ok(check, "gpupack-worker preempts no pods")


def versions(seen: ClusterState) -> Iterator[Finding]:
    """Check that all components, the agents and this command are of one release."""
    check = "versions"
    parts = (*seen.deployments.items, *seen.daemon_sets.items)
    found = {
        each.metadata.name: each.metadata.labels.get("app.kubernetes.io/version", "")
        for each in parts
        if each.metadata.labels.get("app.kubernetes.io/name") == "gpupack"
    }
    for node in seen.gpu_nodes.items:
        if node.status.agent_version:
            found[f"agent of {node.metadata.name}"] = node.status.agent_version
    if not found:
        yield skipped(check, "no component reports its version")
        return
    others = {name: version for name, version in found.items() if version != seen.version}
    if not others:
        yield ok(check, f"{count(len(found), 'component')} and this command are {seen.version}")
        return
    versions = [f"{name} is {version or 'unknown'}" for name, version in sorted(others.items())]
    yield warning(
        check,
        f"this command is {seen.version}, {_some(versions)}",
        fix="upgrade all to one release; during an upgrade this is expected",
    )


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a schema."""
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _fields(each, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), Mapping):
            yield from _fields(schema[inner], f"{path}[]")


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""  # noqa: PLR2004 - enough to see
    return ", ".join(texts[:3]) + more
