# SPDX-License-Identifier: Apache-2.0
"""A Lease as a lock: one of several candidates works.

    acquire ─► held ─► hold: renewed until it is lost ─► LeaseLost
                 └────► release: the next candidate takes over at once

A candidate takes a Lease that it held before (a restarted container of the same pod), that has no
holder, or that has not changed for its duration by the candidate's own clock. Clocks of other
machines are never compared. Every write carries the resourceVersion that it was decided on.

The official client's election is not used: it writes local time as UTC, compares wall clocks, ends
on a refused connection, and never releases the Lease.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable

from gpupack_kubeclient import client, errors, objects
from gpupack_kubeclient.heartbeat import timestamp
from gpupack_kubeclient.resources import LEASES

log = logging.getLogger(__name__)

TRIES_PER_DURATION = 5


class Election:
    """One candidate for one Lease."""

    def __init__(
        self,
        api: client.Api,
        name: str,
        *,
        namespace: str,
        holder: str,
        duration_seconds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._holder = holder
        self._duration = duration_seconds
        self._clock = clock
        self._seen_version = ""
        self._seen_at = 0.0
        self._renewed_at = float("-inf")

    async def acquire(self) -> None:
        """Wait until this candidate holds the Lease."""
        while not await self.try_to_lead():  # noqa: ASYNC110 - it asks the API server
            await asyncio.sleep(self._duration / TRIES_PER_DURATION)
        log.info("%s holds the Lease %s", self._holder, self._name)

    async def hold(self) -> None:
        """Renew the Lease until it is lost.

        Raises:
            LeaseLost: another candidate holds it, or it could not be renewed for most of its
                duration.
        """
        while True:
            await asyncio.sleep(self._duration / TRIES_PER_DURATION)
            if not await self.try_to_lead() and not self.is_still_leader():
                raise errors.LeaseLost(f"{self._holder} could not keep the Lease {self._name}")

    async def release(self) -> None:
        """Release the Lease, so that a successor need not wait."""
        try:
            lease = await self._read()
            if lease and lease.spec.holder_identity == self._holder:
                await self._write(lease, holder="")
        except errors.KubeError as error:
            log.warning("cannot release the Lease %s: %s", self._name, error)

    async def try_to_lead(self) -> bool:
        """Take or renew the Lease; return whether this candidate holds it."""
        started = self._clock()
        try:
            async with asyncio.timeout(self._patience()):
                lease = await self._read()
            if lease and not self._free(lease):
                self._renewed_at = float("-inf")
                return False
            async with asyncio.timeout(self._patience()):
                await self._write(lease, holder=self._holder)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("cannot take or renew the Lease %s: %s", self._name, error)
            return False
        self._renewed_at = started
        return True

    def _patience(self) -> float:
        """Return the timeout of a request: one that hangs must not outlast the Lease."""
        return self._duration / TRIES_PER_DURATION

    def is_still_leader(self) -> bool:
        """Tell whether the Lease is still held; a fifth of the duration is reserved to stop."""
        spent = self._clock() - self._renewed_at
        return spent < self._duration * (TRIES_PER_DURATION - 1) / TRIES_PER_DURATION

    def _free(self, lease: objects.Lease) -> bool:
        if lease.spec.holder_identity in {"", self._holder}:
            return True
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version = lease.metadata.resource_version
            self._seen_at = self._clock()
        return self._clock() - self._seen_at > lease.spec.lease_duration_seconds

    async def _read(self) -> objects.Lease | None:
        try:
            return await self._api.get(LEASES, self._name, namespace=self._namespace)
        except errors.NotFound:
            return None

    async def _write(self, lease: objects.Lease | None, *, holder: str) -> None:
        """Create the Lease, or replace exactly the version that was read."""
        now = timestamp(dt.datetime.now(dt.UTC))
        body: objects.Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": self._duration,
                "acquireTime": self._acquired(lease, now),
                "renewTime": now,
            },
        }
        if lease is None:
            await self._api.create(LEASES, body, namespace=self._namespace)
            return
        body["metadata"]["resourceVersion"] = lease.metadata.resource_version
        await self._api.replace(LEASES, self._name, body, namespace=self._namespace)

    def _acquired(self, lease: objects.Lease | None, now: str) -> str:
        ours = lease is not None and lease.spec.holder_identity == self._holder
        since = lease.spec.acquire_time if lease and ours else None
        return timestamp(since) if since else now
