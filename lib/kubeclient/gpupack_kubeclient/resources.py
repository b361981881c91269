# SPDX-License-Identifier: Apache-2.0
"""The path of each kind in the API, and the type that it is decoded into."""

import dataclasses
from typing import Generic, TypeVar

from gpupack_kubeclient import objects

T = TypeVar("T", bound=objects.Object)


@dataclasses.dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of object.

    Attributes:
        prefix: `/api/v1` or `/apis/GROUP/VERSION`.
        plural: the name in the path, such as `pods`.
        type: the type that an object is decoded into.
        levels: maximum nesting of an object that is read; None: as deep as can be decoded.
        largest_bytes: maximum size of an object's JSON; None: the limit of an answer.
    """

    prefix: str
    plural: str
    type: type[T]
    levels: int | None = None
    largest_bytes: int | None = None

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition defines the kind, so that its schema may change.

        Kubernetes' own groups have no dot, or end with `.k8s.io`.
        """
        group = self.prefix.removeprefix("/apis/").partition("/")[0]
        return "." in group and not group.endswith(".k8s.io")

    def collection(self, namespace: str = "") -> str:
        """Return the path of all objects, of one namespace where one is given."""
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.prefix}{middle}/{self.plural}"

    def path(self, name: str, *, namespace: str = "", subresource: str = "") -> str:
        """Return the path of one object or of a subresource of it."""
        tail = f"/{subresource}" if subresource else ""
        return f"{self.collection(namespace)}/{name}{tail}"


PODS = Resource("/api/v1", "pods", objects.Pod)
NODES = Resource("/api/v1", "nodes", objects.Node)
POD_TEMPLATES = Resource("/api/v1", "podtemplates", objects.Object)
CONFIG_MAPS = Resource("/api/v1", "configmaps", objects.ConfigMap)
SERVICES = Resource("/api/v1", "services", objects.Object)
SECRETS = Resource("/api/v1", "secrets", objects.Object)
JOBS = Resource("/apis/batch/v1", "jobs", objects.Job)
EVENTS = Resource("/apis/events.k8s.io/v1", "events", objects.Object)
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases", objects.Lease)
PRIORITY_CLASSES = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses", objects.PriorityClass)
PROVISIONING_REQUESTS = Resource(
    "/apis/autoscaling.x-k8s.io/v1", "provisioningrequests", objects.ProvisioningRequest
)
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path, not a secret
JWKS = "/openid/v1/jwks"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
