# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' pod template: the fields that a conversion reads; all others are passed on."""

from typing import Any, Final

from gpupack_cli.convert.foreign import Foreign
from gpupack_kubeclient.objects import Json

Quantity = int | float | str

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectMeta(Foreign, frozen=True):
    """Metadata of an object or a pod template; what the API server writes is not kept."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    self_link: str = ""
    managed_fields: tuple[Any, ...] = ()
    owner_references: tuple[Any, ...] = ()
    finalizers: tuple[Any, ...] = ()


class EnvVar(Foreign, frozen=True):
    """An environment variable."""

    name: str
    value: str = ""


class Resources(Foreign, frozen=True):
    """What a container requests."""

    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    claims: tuple[Any, ...] = ()

    def amount(self, name: str) -> Quantity | None:
        """Return a limit, else a request; extended resources have both or only a limit."""
        return self.limits.get(name, self.requests.get(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all resources, sorted."""
        return tuple(sorted({*self.limits, *self.requests}))


class Container(Foreign, frozen=True):
    """A container."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()


class PodSpec(Foreign, frozen=True):
    """A pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    restart_policy: str = ""
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] = {}
    service_account_name: str = ""
    automount_service_account_token: bool | None = None


class PodTemplate(Foreign, frozen=True):
    """A pod template; its spec is parsed where it is converted."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Json = {}
