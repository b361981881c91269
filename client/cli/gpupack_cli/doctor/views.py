# SPDX-License-Identifier: Apache-2.0
"""The objects that the checks read, with their paths."""

import datetime as dt
from typing import Any, Final

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_kubeclient.resources import Resource


class CrdVersion(objects.View, frozen=True):
    """A version of a kind, with its schema."""

    name: str = ""
    served: bool = False
    schema: dict[str, Any] = {}


class CrdSpec(objects.View, frozen=True):
    """The spec of a CustomResourceDefinition."""

    versions: tuple[CrdVersion, ...] = ()


class CrdStatus(objects.View, frozen=True):
    """The status of a CustomResourceDefinition."""

    conditions: tuple[objects.Condition, ...] = ()


class Crd(objects.Object, frozen=True):
    """A CustomResourceDefinition."""

    spec: CrdSpec = CrdSpec()
    status: CrdStatus = CrdStatus()


class PartContainer(objects.View, frozen=True):
    """A container of a part."""

    name: str = ""
    image: str = ""


class Toleration(objects.View, frozen=True):
    """A toleration of a part's pods."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SecretItem(objects.View, frozen=True):
    """A key of a Secret that is a file of a volume."""

    key: str = ""


class SecretSource(objects.View, frozen=True):
    """A Secret that is a volume."""

    secret_name: str = ""
    items: tuple[SecretItem, ...] = ()


class ProjectedSecret(objects.View, frozen=True):
    """A Secret that is a part of a volume."""

    name: str = ""
    items: tuple[SecretItem, ...] = ()


class ProjectedSource(objects.View, frozen=True):
    """A part of a projected volume."""

    secret: ProjectedSecret = ProjectedSecret()


class ProjectedVolume(objects.View, frozen=True):
    """A volume of several parts."""

    sources: tuple[ProjectedSource, ...] = ()


class ServingVolume(objects.View, frozen=True):
    """A volume of a pod."""

    name: str = ""
    secret: SecretSource = SecretSource()
    projected: ProjectedVolume = ProjectedVolume()


class PullSecret(objects.View, frozen=True):
    """A Secret for pulls of images."""

    name: str = ""


class PartPodSpec(objects.View, frozen=True):
    """The spec of a part's pods: images, tolerations and Secrets."""

    containers: tuple[PartContainer, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[ServingVolume, ...] = ()
    image_pull_secrets: tuple[PullSecret, ...] = ()


class PartTemplate(objects.View, frozen=True):
    """A pod template."""

    spec: PartPodSpec = PartPodSpec()


class PartSpec(objects.View, frozen=True):
    """The spec of a Deployment or DaemonSet."""

    replicas: int = 1
    template: PartTemplate = PartTemplate()


class PartStatus(objects.View, frozen=True):
    """The status of a Deployment or DaemonSet."""

    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    conditions: tuple[objects.Condition, ...] = ()


class Part(objects.Object, frozen=True):
    """A Deployment or DaemonSet of gpupack."""

    spec: PartSpec = PartSpec()
    status: PartStatus = PartStatus()


class RenewedSpec(objects.View, frozen=True):
    """The spec of a Lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: dt.datetime | None = None


class LeaseRenewal(objects.Object, frozen=True):
    """A Lease with the time of its renewal."""

    spec: RenewedSpec = RenewedSpec()


class ExpressionWarning(objects.View, frozen=True):
    """A problem that the API server finds in an expression of a policy."""

    warning: str = ""


class TypeChecking(objects.View, frozen=True):
    """The problems in all expressions of a policy."""

    expression_warnings: tuple[ExpressionWarning, ...] = ()


class AdmissionStatus(objects.View, frozen=True):
    """The status of a policy."""

    type_checking: TypeChecking = TypeChecking()


class AdmissionPolicy(objects.Object, frozen=True):
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""

    status: AdmissionStatus = AdmissionStatus()


class BindingSpec(objects.View, frozen=True):
    """The spec of a binding."""

    policy_name: str = ""


class AdmissionBinding(objects.Object, frozen=True):
    """The binding that makes a policy effective."""

    spec: BindingSpec = BindingSpec()


class WebhookService(objects.View, frozen=True):
    """The Service of a webhook."""

    name: str = ""
    namespace: str = ""


class WebhookClient(objects.View, frozen=True):
    """The address at which the API server reaches a webhook."""

    service: WebhookService | None = None


class WebhookRule(objects.View, frozen=True):
    """The resources for which a webhook is called."""

    resources: tuple[str, ...] = ()


class Webhook(objects.View, frozen=True):
    """One webhook."""

    name: str = ""
    failure_policy: str = "Fail"
    client_config: WebhookClient = WebhookClient()
    rules: tuple[WebhookRule, ...] = ()


class Webhooks(objects.Object, frozen=True):
    """A ValidatingWebhookConfiguration or MutatingWebhookConfiguration."""

    webhooks: tuple[Webhook, ...] = ()


class Certificates(objects.Object, frozen=True):
    """A Secret."""

    data: dict[str, str] = {}


class ServingPort(objects.View, frozen=True):
    """A port of a container."""

    name: str = ""
    container_port: int = 0


class ServingContainer(objects.View, frozen=True):
    """A container that may serve."""

    ports: tuple[ServingPort, ...] = ()


class ServingPodSpec(objects.View, frozen=True):
    """The spec of a pod, with its Secrets and ports for TLS."""

    containers: tuple[ServingContainer, ...] = ()
    volumes: tuple[ServingVolume, ...] = ()


class ServingPod(objects.Object, frozen=True):
    """A pod of gpupack."""

    spec: ServingPodSpec = ServingPodSpec()
    status: objects.PodStatus = objects.PodStatus()


class SeenGpuJobStatus(objects.View, frozen=True):
    """The status of a GPUJob, with its workers' communication."""

    conditions: tuple[objects.Condition, ...] = ()
    finished_at: dt.datetime | None = None


class SeenGpuJob(objects.Object, frozen=True):
    """A GPUJob; of a thousand of them only this is kept."""

    status: SeenGpuJobStatus = SeenGpuJobStatus()


class ServerVersion(msgspec.Struct, rename="camel", frozen=True):
    """The version of the API server."""

    git_version: str = ""
    major: str = ""
    minor: str = ""


GPUJOBS: Final = Resource(names.API_PREFIX, "gpujobs", SeenGpuJob)
CRDS: Final = Resource("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Crd)
DEPLOYMENTS: Final = Resource("/apis/apps/v1", "deployments", Part)
SERVING_PODS: Final = Resource("/api/v1", "pods", ServingPod)
DAEMON_SETS: Final = Resource("/apis/apps/v1", "daemonsets", Part)
LEASES: Final = Resource("/apis/coordination.k8s.io/v1", "leases", LeaseRenewal)
SECRETS: Final = Resource("/api/v1", "secrets", Certificates)
ACCOUNTS: Final = Resource("/api/v1", "serviceaccounts", objects.Object)
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = Resource(ADMISSION, "validatingadmissionpolicies", AdmissionPolicy)
BINDINGS: Final = Resource(ADMISSION, "validatingadmissionpolicybindings", AdmissionBinding)
VALIDATING: Final = Resource(ADMISSION, "validatingwebhookconfigurations", Webhooks)
MUTATING: Final = Resource(ADMISSION, "mutatingwebhookconfigurations", Webhooks)
