# SPDX-License-Identifier: Apache-2.0
"""Audit whether the watches keep up: a live process does not prove a live watch.

Once a minute all watched objects are listed and compared with the indices. An indexed object that
no longer exists was deleted without an event, and is ignored from then on; a GPUJob, about which
kopf sends no further events, leaves the index. An existing object that cannot be read, or that its
watch skipped, stays as it was last known. An object that changed before the last audit and is still
not indexed in that version proves a dead watch, and the operator restarts. At the end every GPUJob
is reconciled, so that nothing depends on a single event.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import client, errors, listing
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Object
from gpupack_kubeclient.resources import JOBS, PODS, Resource
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, Lookup
from gpupack_operator.errors import WatchStale

log = logging.getLogger(__name__)

AUDIT_SECONDS = 60.0
Versions = dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class WatchedKind:
    """Watched kind, and the indexed objects of it."""

    resource: Resource[Any]
    selector: str
    indexed: Callable[[], Versions]
    skipped: Collection[str] = ()
    """Objects that the watch reported and skipped, as namespace and name."""


class Audit:
    """Comparison of the indices with the API server.

    Args:
        api: the API server.
        cache: reads the indices.
        drop: removes the GPUJob of a UID from its index. Reflectors list again after a gap and
            update their indices themselves; kopf does not report objects that were deleted in the
            gap.
        skipped: GPUJobs of which kopf did not receive the newest version, or that could not be
            read then, as namespace and name.
        namespace: the only namespace to audit; empty: all.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        drop: Callable[[str], None],
        *,
        skipped: Collection[str] = (),
        namespace: str,
    ) -> None:
        self._api = api
        self._cache = cache
        self._drop = drop
        self._skipped = skipped
        self._namespace = namespace
        self._missed: dict[str, Versions] = {}

    async def run(self, resync: Callable[[], None]) -> None:
        """Audit in an endless loop.

        Raises:
            WatchStale: a watch is dead.
        """
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            try:
                for watched in self.kinds():
                    await self.check(watched)
            except errors.KubeError as error:
                log.warning("cannot audit the watches: %s", error)
            self._cache.forget_deleted()
            resync()

    def kinds(self) -> tuple[WatchedKind, ...]:
        """Return the watched kinds, GPUJobs first."""
        cache = self._cache
        return (
            WatchedKind(READABLE_GPUJOBS, "", lambda: _versions(cache.gpujobs), self._skipped),
            WatchedKind(JOBS, names.JOB_LABEL, lambda: _versions(cache.jobs)),
            WatchedKind(PODS, names.JOB_LABEL, lambda: _versions(cache.pods)),
        )

    async def check(self, watched: WatchedKind) -> None:
        """Compare the index of one kind with the API server.

        Raises:
            WatchStale: its watch is dead.
        """
        before = watched.indexed()
        there, unreadable = await self._list(watched)
        for uid in before.keys() - there.keys() - unreadable:
            self._cache.mark_deleted(uid)
            self._drop(uid)
        kind = watched.resource.plural
        now = watched.indexed()
        missed = {uid: version for uid, version in there.items() if now.get(uid) != version}
        stale = missed.items() & self._missed.get(kind, {}).items()
        if stale:
            raise WatchStale(f"{len(stale)} {kind} have changed without an event")
        self._missed[kind] = missed

    async def _list(self, watched: WatchedKind) -> tuple[Versions, set[str]]:
        """Return versions by UID of what a watch accepts, and the UIDs of what it skips."""
        found: Versions = {}
        unreadable: set[str] = set()
        selectors = {"labelSelector": watched.selector} if watched.selector else {}
        pages = listing.pages(
            self._api, watched.resource, namespace=self._namespace, selectors=selectors
        )
        async for page in pages:
            unreadable |= {metadata.uid for metadata in page.skipped}
            for raw in page.items:
                try:
                    meta = client.read(raw, watched.resource).metadata
                except errors.KubeError:
                    unreadable |= _uid(raw)
                    continue
                if f"{meta.namespace}/{meta.name}" in watched.skipped:
                    unreadable.add(meta.uid)
                else:
                    found[meta.uid] = meta.resource_version
        return found, unreadable


def _uid(raw: msgspec.Raw) -> set[str]:
    with contextlib.suppress(errors.KubeError):
        return {client.decode(raw, Object).metadata.uid}
    return set()


def _versions(index: Lookup) -> Versions:
    found = [item.metadata for key in list(index) for item in list(index[key])]
    return {meta.uid: meta.resource_version for meta in found}
