# SPDX-License-Identifier: Apache-2.0
"""Objects that request nodes: a PodTemplate, and the ProvisioningRequest for it.

The pods are those of the next attempt, without a placement. The autoscaler knows neither gpupack's
ledger nor its spread rules. Pod anti-affinity expresses to it that each worker needs its own node.
"""

from typing import Any, Final

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.objects import Json
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.manifests import owner

API_VERSION: Final = "autoscaling.x-k8s.io/v1"

ATOMIC_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
VALID_SECONDS: Final = "ValidUntilSeconds"
"""Parameter of the atomic class: how long the autoscaler tries."""


def pod_template(job: GpuJob, template: Json, *, number: int) -> Json:
    """Make the PodTemplate NAME-nodes-n.

    Args:
        job: the PodTemplate's owner.
        template: pod template of the next attempt, not pinned to nodes.
        number: n.
    """
    spread = job.spec.spread
    if spread is not None and spread.one_worker_per_node:
        template = template | {"spec": _with_anti_affinity(template["spec"], job)}
    name = names.nodes_request(job.metadata.name, number=number)
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": owner.metadata(job, name=name),
        "template": template,
    }


def provisioning_request(job: GpuJob, settings: Provisioning, *, number: int) -> Json:
    """Make that PodTemplate's ProvisioningRequest, for all workers that start together."""
    parameters = dict(settings.parameters)
    if settings.class_name == ATOMIC_CLASS:
        parameters.setdefault(VALID_SECONDS, f"{settings.decision_seconds:.0f}")
    name = names.nodes_request(job.metadata.name, number=number)
    return {
        "apiVersion": API_VERSION,
        "kind": "ProvisioningRequest",
        "metadata": owner.metadata(job, name=name),
        "spec": {
            "provisioningClassName": settings.class_name,
            "parameters": parameters,
            "podSets": [{"podTemplateRef": {"name": name}, "count": job.spec.least}],
        },
    }


def with_provisioned_nodes(template: Json, job: GpuJob, settings: Provisioning) -> Json:
    """Return the pod template of an attempt whose pods run on the requested nodes."""
    request = job.status.nodes_request
    if request is None or request.state != "Provisioned":
        return template
    name = names.nodes_request(job.metadata.name, number=request.number)
    metadata = template["metadata"]
    annotations = metadata["annotations"] | {
        names.CONSUMED_REQUEST_ANNOTATION: name,
        names.PROVISIONING_CLASS_ANNOTATION: settings.class_name,
    }
    return template | {"metadata": metadata | {"annotations": annotations}}


def _with_anti_affinity(pod_spec: Json, job: GpuJob) -> Json:
    term: dict[str, Any] = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": owner.labels(job)},
    }
    affinity = pod_spec.get("affinity") or {}
    anti = affinity.get("podAntiAffinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = {required: [*(anti.get(required) or ()), term]}
    return pod_spec | {"affinity": affinity | {"podAntiAffinity": anti | terms}}
