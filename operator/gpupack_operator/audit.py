# SPDX-License-Identifier: Apache-2.0
"""Do the watches keep up? A live process is not a live watch.

Once a minute everything that is watched is listed and compared. What is indexed but no longer
there was deleted unheard of, and is left out from then on; a GPUJob, of which kopf tells nothing
any more, leaves the index. What is there and cannot be read, or was passed over by its watch, stays
as it was last known. What was changed before the last audit and is still not indexed like that
proves a dead watch, and the operator starts anew. At the end every GPUJob is looked at, so that
nothing depends on one event having been heard.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from gpupack_crds import names
from gpupack_kube import client, errors, listing
from gpupack_kube.client import Api
from gpupack_kube.objects import Object
from gpupack_kube.resources import JOBS, PODS, Resource
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, Lookup
from gpupack_operator.errors import WatchStale

log = logging.getLogger(__name__)

AUDIT_SECONDS = 60.0
Versions = dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """A kind that is watched, and what of it is indexed."""

    resource: Resource[Any]
    selector: str
    indexed: Callable[[], Versions]
    passed_over: Collection[str] = ()
    """What the watch has told of and left out, by namespace and name."""


class Audit:
    """Compares the indices with the API server.

    Args:
        api: the API server.
        cache: reads the indices.
        drop: takes the GPUJob of a UID out of its index. Reflectors list anew after a gap and see
            to their indices themselves; kopf does not tell of what went meanwhile.
        passed_over: GPUJobs of which kopf was not shown the newest version, or that could not be
            read then, by namespace and name.
        namespace: look at this namespace only; empty: at all.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        drop: Callable[[str], None],
        *,
        passed_over: Collection[str] = (),
        namespace: str,
    ) -> None:
        self._api = api
        self._cache = cache
        self._drop = drop
        self._passed_over = passed_over
        self._namespace = namespace
        self._missed: dict[str, Versions] = {}

    async def run(self, resync: Callable[[], None]) -> None:
        """Audit for ever.

        Raises:
            WatchStale: a watch is dead.
        """
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            try:
                for watched in self._kinds():
                    await self._check(watched)
            except errors.KubeError as error:
                log.warning("cannot audit the watches: %s", error)
            self._cache.forget_deleted()
            resync()

    def _kinds(self) -> tuple[Watched, ...]:
        cache = self._cache
        return (
            Watched(
                READABLE_GPUJOBS,
                "",
                lambda: _versions(cache.gpujobs, lambda seen: seen.job),
                self._passed_over,
            ),
            Watched(JOBS, names.JOB_LABEL, lambda: _versions(cache.jobs, lambda job: job)),
            Watched(PODS, names.JOB_LABEL, lambda: _versions(cache.pods, lambda pod: pod)),
        )

    async def _check(self, watched: Watched) -> None:
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
            raise WatchStale(f"{len(stale)} {kind} have changed without being heard of")
        self._missed[kind] = missed

    async def _list(self, watched: Watched) -> tuple[Versions, set[str]]:
        """Versions by UID of what a watch takes in; UIDs of what it passes over."""
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
                if f"{meta.namespace}/{meta.name}" in watched.passed_over:
                    unreadable.add(meta.uid)
                else:
                    found[meta.uid] = meta.resource_version
        return found, unreadable


def _uid(raw: msgspec.Raw) -> set[str]:
    with contextlib.suppress(errors.KubeError):
        return {client.decode(raw, Object).metadata.uid}
    return set()


def _versions(index: Lookup, object_of: Callable[[Any], Object]) -> Versions:
    found = [object_of(item).metadata for key in list(index) for item in list(index[key])]
    return {meta.uid: meta.resource_version for meta in found}
