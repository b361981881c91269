# SPDX-License-Identifier: Apache-2.0
"""The kinds of the API group as whole objects, and their paths in the API."""

import msgspec

from gpupack_crds import names
from gpupack_crds.gpucohort import GpuCohortSpec
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.gpunode import GpuNodeSpec, GpuNodeStatus
from gpupack_crds.gpuquota import GpuQuotaSpec
from gpupack_crds.gpureservation import GpuReservationSpec, GpuReservationStatus
from gpupack_crds.quota import CohortStatus, QuotaStatus
from gpupack_kubeclient import objects
from gpupack_kubeclient.node_owner import node_uid
from gpupack_kubeclient.resources import Resource


class GpuJob(objects.Object, frozen=True):
    """A GPUJob as the API server holds it."""

    spec: GpuJobSpec = GpuJobSpec()
    status: GpuJobStatus = GpuJobStatus()


class GpuNode(objects.Object, frozen=True):
    """A GPUNode as the API server holds it."""

    spec: GpuNodeSpec = GpuNodeSpec()
    status: GpuNodeStatus = GpuNodeStatus()

    def is_of(self, node: objects.Node) -> bool:
        """Tell whether this is the GPUNode of the given Node, not of an earlier Node of that name.

        A GPUNode without an owner counts: its owner is about to be added.
        """
        return node_uid(self.metadata) in {"", node.metadata.uid}


class GpuQuota(objects.Object, frozen=True):
    """A GPUQuota as the API server holds it."""

    spec: GpuQuotaSpec = GpuQuotaSpec()
    status: QuotaStatus = QuotaStatus()


class GpuCohort(objects.Object, frozen=True):
    """A GPUCohort as the API server holds it."""

    spec: GpuCohortSpec = GpuCohortSpec()
    status: CohortStatus = CohortStatus()


class GpuReservation(objects.Object, frozen=True):
    """A GPUReservation as the API server holds it."""

    spec: GpuReservationSpec = GpuReservationSpec()
    status: GpuReservationStatus = GpuReservationStatus()


GPUJOBS = Resource(names.API_PREFIX, "gpujobs", GpuJob)
GPUNODES = Resource(names.API_PREFIX, "gpunodes", GpuNode)
GPUQUOTAS = Resource(names.API_PREFIX, "gpuquotas", GpuQuota)
GPUCOHORTS = Resource(names.API_PREFIX, "gpucohorts", GpuCohort)
GPURESERVATIONS = Resource(names.API_PREFIX, "gpureservations", GpuReservation)


def owner_reference(name: str, uid: str) -> objects.Json:
    """Return the owner reference that removes an object with its GPUJob in the same namespace."""
    return {"apiVersion": names.API_VERSION, "kind": "GPUJob", "name": name, "uid": uid}


def status_body(kind: str, metadata: objects.ObjectMeta, status: msgspec.Struct) -> objects.Json:
    """Return a body that replaces the status of exactly the version that was read."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        },
        "status": msgspec.to_builtins(status),
    }
