# SPDX-License-Identifier: Apache-2.0
"""The one address behind the Service of the plan API: the leader's.

The leader writes its address into the Service's EndpointSlice before it decides anything, and
checks it each second: a successor takes it over like all other duties. Standbys are Ready, so that
a rollout ends, a disruption budget counts and a broken version is detected before it leads.

The alternative that only the leader is Ready was rejected: of two replicas one would never be
Ready, and `helm --wait` and a drain of the leader's node wait for it. A label of its pod was
rejected as well: no component may write pods.

The pod owns the slice, so that nothing is left of it when gpupack is removed. A new leader that
finds no slice knows that its predecessor's pod is gone, and with it all requests that it sent.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import logging
from collections.abc import Callable
from typing import Final

from gpupack_extender.takeover import Takeover
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


@dataclasses.dataclass(slots=True, kw_only=True)
class LeaderEndpoint:
    """Task that routes the Service to this pod while this process leads.

    Attributes:
        leads: tells whether this process leads.
        is_known: is set once that is known.
        takeover: is notified of a term without a predecessor.
        looked: is set after the first look.
    """

    api: Api
    pod: OwnPod
    leads: Callable[[], bool]
    is_known: asyncio.Event
    takeover: Takeover
    looked: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    _published_in: int = 0
    """Last term in which the slice led here; a slice that is deleted later proves nothing."""

    async def run(self) -> None:
        """Look at once when a term begins, and in an endless loop; a failed write is repeated."""
        await self.is_known.wait()
        while True:
            self.takeover.begun.clear()
            if self.pod.address and self.leads():
                await self._look()
            self.looked.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.takeover.begun.wait(), LOOK_SECONDS)

    async def _look(self) -> None:
        term = self.takeover.terms
        try:
            is_first = await self.publish()
        except errors.KubeError as error:
            log.warning("cannot lead the Service %s here: %s", SERVICE, error)
            return
        if is_first and term != self._published_in:
            self.takeover.has_no_predecessor(term)
        self._published_in = term

    async def publish(self) -> bool:
        """Make this pod the Service's only endpoint; return whether there was no slice.

        Raises:
            KubeError: the API server did not execute a request.
        """
        namespace = self.pod.namespace
        try:
            found = await self.api.get(ENDPOINT_SLICES, SERVICE, namespace=namespace)
        except errors.NotFound:
            await self.api.create(ENDPOINT_SLICES, self._slice(""), namespace=namespace)
            return True
        if found.addresses == (self.pod.address,):
            return False
        body = self._slice(found.metadata.resource_version)
        await self.api.replace(ENDPOINT_SLICES, SERVICE, body, namespace=namespace)
        log.info("the Service %s leads here, to %s", SERVICE, self.pod.address)
        return False

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
