# SPDX-License-Identifier: Apache-2.0
"""The one address behind the Service of the plan API: the leader's.

The deciding process writes its address into the Service's EndpointSlice, and checks it each second:
a successor takes it over like all other duties. Standbys are Ready, so that a rollout ends, a
disruption budget counts and a broken version is detected before it leads.

The alternative that only the leader is Ready was rejected: of two replicas one would never be
Ready, and `helm --wait` and a drain of the leader's node wait for it. A label of its pod was
rejected as well: no component may write pods.

The pod owns the slice, so that nothing is left of it when gpupack is removed.
"""

import asyncio
import dataclasses
import ipaddress
import logging
from collections.abc import Callable
from typing import Final

from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import Resource

log = logging.getLogger(__name__)

SERVICE: Final = "gpupack-extender"
LOOK_SECONDS: Final = 1.0


class Endpoint(objects.View, frozen=True):
    """One endpoint of a slice."""

    addresses: tuple[str, ...] = ()


class EndpointSlice(objects.Object, frozen=True):
    """Addresses behind a Service."""

    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses."""
        return tuple(a for endpoint in self.endpoints or () for a in endpoint.addresses)


ENDPOINT_SLICES = Resource("/apis/discovery.k8s.io/v1", "endpointslices", EndpointSlice)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod:
    """The pod of this process; without an address (outside a cluster) nothing is written."""

    namespace: str
    name: str
    uid: str = ""
    address: str = ""
    port: int = 8443


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEndpoint:
    """Task that routes the Service to this pod while this process decides."""

    api: Api
    pod: OwnPod
    decides: Callable[[], bool]

    async def run(self) -> None:
        """Check in an endless loop; a failed write is repeated in the next pass."""
        while True:
            if self.pod.address and self.decides():
                try:
                    await self.publish()
                except errors.KubeError as error:
                    log.warning("cannot lead the Service %s here: %s", SERVICE, error)
            await asyncio.sleep(LOOK_SECONDS)

    async def publish(self) -> None:
        """Make this pod the Service's only endpoint, if it is not already.

        Raises:
            KubeError: the API server did not execute a request.
        """
        namespace = self.pod.namespace
        try:
            found = await self.api.get(ENDPOINT_SLICES, SERVICE, namespace=namespace)
        except errors.NotFound:
            await self.api.create(ENDPOINT_SLICES, self._slice(""), namespace=namespace)
            return
        if found.addresses == (self.pod.address,):
            return
        body = self._slice(found.metadata.resource_version)
        await self.api.replace(ENDPOINT_SLICES, SERVICE, body, namespace=namespace)
        log.info("the Service %s leads here, to %s", SERVICE, self.pod.address)

    def _slice(self, version: str) -> objects.Json:
        """Return the slice, as a replacement of exactly this version."""
        pod = self.pod
        family = ipaddress.ip_address(pod.address).version
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        metadata: objects.Json = {
            "name": SERVICE,
            "namespace": pod.namespace,
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": SERVICE,
            },
            "ownerReferences": [owner],
        }
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": f"IPv{family}",
            "endpoints": [{"addresses": [pod.address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": pod.port, "protocol": "TCP"}],
        }
