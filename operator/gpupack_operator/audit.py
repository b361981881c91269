# SPDX-License-Identifier: Apache-2.0
"""Do the watches keep up? A live process is not a live watch.

Once a minute everything that is watched is listed and compared. What is indexed but no longer
there is a ghost and left out from then on. What was changed before the last audit and is still
not indexed like that proves a dead watch, and the operator starts anew. At the end every GPUJob
is looked at, so that nothing depends on one event having been heard.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from gpupack_crds import names
from gpupack_kube import errors
from gpupack_kube.client import Api, decode
from gpupack_kube.objects import Object
from gpupack_kube.resources import JOBS, PODS, Resource
from gpupack_operator.errors import WatchStale
from gpupack_operator.world import READABLE_GPUJOBS, Index, World

log = logging.getLogger(__name__)

AUDIT_SECONDS = 60.0
PAGE_ITEMS = "500"
Versions = dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """A kind that is watched, and what of it is indexed."""

    resource: Resource[Any]
    selector: str
    indexed: Callable[[], Versions]


class Audit:
    """Compares the indices with the API server."""

    def __init__(self, api: Api, world: World, *, namespace: str) -> None:
        self._api = api
        self._world = world
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
            self._world.forget_ghosts()
            resync()

    def _kinds(self) -> tuple[Watched, ...]:
        world = self._world
        return (
            Watched(READABLE_GPUJOBS, "", lambda: _versions(world.gpujobs, lambda seen: seen.job)),
            Watched(JOBS, names.JOB_LABEL, lambda: _versions(world.jobs, lambda job: job)),
            Watched(PODS, names.JOB_LABEL, lambda: _versions(world.pods, lambda pod: pod)),
        )

    async def _check(self, watched: Watched) -> None:
        before = watched.indexed()
        there = await self._list(watched)
        for uid in before.keys() - there.keys():
            self._world.mark_gone(uid)
        kind = watched.resource.plural
        now = watched.indexed()
        missed = {uid: version for uid, version in there.items() if now.get(uid) != version}
        stale = missed.items() & self._missed.get(kind, {}).items()
        if stale:
            raise WatchStale(f"{len(stale)} {kind} have changed without being heard of")
        self._missed[kind] = missed

    async def _list(self, watched: Watched) -> Versions:
        found: Versions = {}
        query = {"limit": PAGE_ITEMS}
        if watched.selector:
            query["labelSelector"] = watched.selector
        while True:
            page = await self._api.raw_page(watched.resource, namespace=self._namespace, **query)
            found |= dict(_readable(page.items or (), watched.resource))
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_


def _readable(items: Iterable[msgspec.Raw], kind: Resource[Any]) -> Iterator[tuple[str, str]]:
    """UIDs and versions of the objects that a watch takes in; it passes over the others too."""
    for raw in items:
        with contextlib.suppress(errors.KubeError):
            meta = decode(raw, kind.type).metadata
            yield meta.uid, meta.resource_version


def _versions(index: Index, object_of: Callable[[Any], Object]) -> Versions:
    found = [object_of(item).metadata for key in list(index) for item in list(index[key])]
    return {meta.uid: meta.resource_version for meta in found}
