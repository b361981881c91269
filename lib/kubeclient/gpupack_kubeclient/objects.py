# SPDX-License-Identifier: Apache-2.0
"""Typed views of the built-in objects, with only the fields that gpupack reads.

Unknown fields are skipped while decoding, which makes a list of ten thousand pods cheap. Components
build the objects that they write as plain dictionaries.
"""

import datetime as dt
from typing import Any

import msgspec


class View(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """Base of all views: camel case on the wire; absent fields take their default."""


class OwnerReference(View, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(View, frozen=True):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: int = 0


class Object(View, frozen=True):
    """Anything with metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster-scoped kinds) and name."""
        return self.metadata.namespace, self.metadata.name


class ListMeta(View, frozen=True):
    """The metadata of a list: where to watch from, and where the next page starts."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Resources(View, frozen=True):
    """Requests and limits as the API writes them, such as `{"cpu": "500m"}`."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Container(View, frozen=True):
    """A container of a pod's spec."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class SchedulingGate(View, frozen=True):
    """A gate that keeps a pod from its scheduler."""

    name: str = ""


class PodSpec(View, frozen=True):
    """The spec of a pod, without its rules about nodes.

    Users write these rules freely; they may take a megabyte as JSON and twenty in memory. Code that
    needs them reads them from a view of its own.
    """

    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    """Value of its PriorityClass, written by admission."""
    preemption_policy: str = "PreemptLowerPriority"
    """Policy of its PriorityClass, written by admission."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources = Resources()
    """Resources of the pod as a whole."""
    overhead: dict[str, str | int | float] = {}
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    active_deadline_seconds: int | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30


class ContainerTerminated(View, frozen=True):
    """The state of a container that has ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: dt.datetime | None = None


class ContainerWaiting(View, frozen=True):
    """The state of a container that does not run yet, with the reason."""

    reason: str = ""
    message: str = ""


class ContainerRunning(View, frozen=True):
    """The state of a running container; no fields of it are read."""


class ContainerState(View, frozen=True):
    """The state of a container: exactly one of the three is set."""

    terminated: ContainerTerminated | None = None
    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None


class ContainerStatus(View, frozen=True):
    """The kubelet's status of a container."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: dict[str, str | int | float] = {}
    """Requests that the kubelet has admitted; a resize may still want others."""
    resources: Resources | None = None
    """Resources that the container runs with; a resize may not have reached it yet."""


class Condition(View, frozen=True):
    """A condition of a pod, node or job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: dt.datetime | None = None


class PodStatus(View, frozen=True):
    """The status of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: dt.datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: dict[str, str | int | float] = {}
    """Requests of the pod as a whole, with its overhead, that the kubelet has admitted."""
    resources: Resources | None = None
    resize: str = ""
    """State of a resize, as Kubernetes before 1.33 reports it."""

    @property
    def resize_is_infeasible(self) -> bool:
        """Whether the kubelet cannot carry out the resize that the spec requests."""
        pending = next((c for c in self.conditions if c.type == "PodResizePending"), None)
        return (pending.reason if pending else self.resize) == "Infeasible"

    @property
    def shows_running(self) -> bool:
        """Whether the kubelet last reported some container as running."""
        statuses = (*self.container_statuses, *self.init_container_statuses)
        return any(each.state.running is not None for each in statuses)


class Pod(Object, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether no container of the pod runs or will run again."""
        return self.status.phase in {"Succeeded", "Failed"}


class Taint(View, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(View, frozen=True):
    """The spec of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True):
    """The status of a node."""

    allocatable: dict[str, str | int] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class JobSpec(View, frozen=True):
    """The spec of a Job."""

    suspend: bool = False
    active_deadline_seconds: int | None = None


class JobStatus(View, frozen=True):
    """The status of a Job."""

    start_time: dt.datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(Object, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class PriorityClass(Object, frozen=True):
    """A PriorityClass: the priority and preemption policy of pods."""

    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"


class LeaseSpec(View, frozen=True):
    """The spec of a Lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: dt.datetime | None = None


class ConfigMap(Object, frozen=True):
    """A ConfigMap with its data."""

    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Lease(Object, frozen=True):
    """A Lease."""

    spec: LeaseSpec = LeaseSpec()


class ProvisioningRequestStatus(View, frozen=True):
    """The status of a ProvisioningRequest, as cluster-autoscaler writes it."""

    conditions: tuple[Condition, ...] = ()


class ProvisioningRequest(Object, frozen=True):
    """A request to cluster-autoscaler for nodes."""

    status: ProvisioningRequestStatus = ProvisioningRequestStatus()


Json = dict[str, Any]
"""An object that is sent to the API server."""
