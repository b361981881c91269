# SPDX-License-Identifier: Apache-2.0
"""Everything that the checks look at."""

import dataclasses
import datetime as dt
from typing import Generic, TypeVar

from gpupack.cluster.release import Release
from gpupack_cli.doctor import views
from gpupack_crds.kinds import GpuCohort, GpuNode, GpuQuota
from gpupack_kube import objects

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was read, or why it could not be.

    Attributes:
        items: by the order of their names.
        refused: empty: it was read.
    """

    items: tuple[T, ...] = ()
    refused: str = ""

    def named(self, name: str) -> T | None:
        """The object of that name."""
        return next((each for each in self.items if _name(each) == name), None)


def _name(item: object) -> str:
    return item.metadata.name if isinstance(item, objects.Object) else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """What a part answered to a call, mostly through the API server's proxy.

    Attributes:
        status: of HTTP; 0: there was no answer.
        said: the answer, or why there is none, shortened.
        by_part: whether the part itself answered.
    """

    status: int = 0
    said: str = ""
    by_part: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """What a pod serves, and what its Secret holds.

    Attributes:
        pod: its name.
        secret: the name of its Secret.
        held: the certificate in the Secret (DER); empty: it was not read.
        shown: the certificate in the handshake (DER); empty: there was none.
        said: why one of them is empty.
    """

    pod: str
    secret: str
    held: bytes = b""
    shown: bytes = b""
    said: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The installation at a moment.

    Attributes:
        now: by the API server's clock.
        version: of this command.
        release: which installation this is.
        server: of the API server.
        pods: of the release's namespace.
        pending: pods that have no node or no running container, of all namespaces.
        webhooks: those that refuse everything while they are away, with whether their Service is
            there.
        metrics: what the extender's metrics answered, without a token of its own.
        rest: what the REST API's probe answered.
        caller: what the REST API answered to the caller's own token.
        served: certificates that pods serve, by which they were asked.
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
    leases: Read[views.Renewed] = Read()
    policies: Read[views.AdmissionPolicy] = Read()
    bindings: Read[views.AdmissionBinding] = Read()
    webhooks: Read[tuple[views.Webhook, bool]] = Read()
    priority_classes: Read[objects.PriorityClass] = Read()
    secrets: Read[views.Certificates] = Read()
    nodes: Read[objects.Node] = Read()
    gpu_nodes: Read[GpuNode] = Read()
    gpu_jobs: Read[views.SeenGpuJob] = Read()
    quotas: Read[GpuQuota] = Read()
    cohorts: Read[GpuCohort] = Read()
    metrics: Probe = Probe()
    rest: Probe = Probe()
    caller: Probe = Probe()
    served: Read[Served] = Read()
