# SPDX-License-Identifier: Apache-2.0
"""Everything that the checks read."""

import dataclasses
import datetime as dt
from typing import Generic, TypeVar

from gpupack.cluster.release import Release
from gpupack_cli.doctor import views
from gpupack_crds.kinds import GpuCohort, GpuNode, GpuQuota
from gpupack_kubeclient import objects

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """The objects that were read, or the reason why they could not be read.

    Attributes:
        items: the objects, by name.
        refused: why they could not be read; empty: they were.
    """

    items: tuple[T, ...] = ()
    refused: str = ""

    def named(self, name: str) -> T | None:
        """Return the object of that name."""
        return next((each for each in self.items if _name(each) == name), None)


def _name(item: object) -> str:
    return item.metadata.name if isinstance(item, objects.Object) else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """A component's answer to a call, mostly through the API server's proxy.

    Attributes:
        status: status code of HTTP; 0: there was no answer.
        detail: the answer, or why there is none, shortened.
        by_component: whether the component itself answered.
    """

    status: int = 0
    detail: str = ""
    by_component: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ServedCertificate:
    """The certificate that a pod serves, and the one in its Secret.

    Attributes:
        pod: name of the pod.
        secret: name of its Secret.
        in_secret: the certificate in the Secret (DER); empty: it was not read.
        in_handshake: the certificate in the handshake (DER); empty: there was none.
        error: why one of them is empty.
    """

    pod: str
    secret: str
    in_secret: bytes = b""
    in_handshake: bytes = b""
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The installation at one time.

    Attributes:
        now: time by the API server's clock.
        version: version of this command.
        release: the installation.
        server: version of the API server.
        pods: pods of the release's namespace.
        pending: pods without a node or a running container, of all namespaces.
        webhooks: webhooks that refuse everything while their Service is gone, with whether it
            exists.
        accounts: the ServiceAccount of a Prometheus, where the chart creates one.
        secrets: those of the Secrets that the release needs that exist.
        metrics: answer of the extender's metrics, without a token.
        rest: answer of the REST API's probe.
        caller: answer of the REST API to the caller's own token.
        served: certificates that pods serve, from handshakes.
    """

    now: dt.datetime
    version: str
    release: Release
    server: views.ServerVersion = dataclasses.field(default_factory=views.ServerVersion)
    crds: Read[views.Crd] = Read()
    deployments: Read[views.Part] = Read()
    daemon_sets: Read[views.Part] = Read()
    pods: Read[objects.Pod] = Read()
    pending: Read[objects.Pod] = Read()
    leases: Read[views.LeaseRenewal] = Read()
    policies: Read[views.AdmissionPolicy] = Read()
    bindings: Read[views.AdmissionBinding] = Read()
    webhooks: Read[tuple[views.Webhook, bool]] = Read()
    priority_classes: Read[objects.PriorityClass] = Read()
    accounts: Read[objects.Object] = Read()
    secrets: Read[views.Certificates] = Read()
    nodes: Read[objects.Node] = Read()
    gpu_nodes: Read[GpuNode] = Read()
    gpu_jobs: Read[views.SeenGpuJob] = Read()
    quotas: Read[GpuQuota] = Read()
    cohorts: Read[GpuCohort] = Read()
    metrics: Probe = Probe()
    rest: Probe = Probe()
    caller: Probe = Probe()
    served: Read[ServedCertificate] = Read()
