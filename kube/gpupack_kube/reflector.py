# SPDX-License-Identifier: Apache-2.0
"""List and watch one kind into a store, for ever.

    list (paged) ─► store.replace ─► watch ─► store.upsert / store.remove
      ▲                                │ 410 Expired, or a broken line: list anew
      └────────────────────────────────┘ closed or unreachable: watch on from the last version

An object that cannot be read, as one that a newer release wrote, stops nobody else's: it is
logged, counted and passed over. A watch keeps what was last known of it; a list leaves it out.

`fresh_at` is the monotonic time of the last word from the server, bookmarks included, so that
readiness can tell a quiet cluster from a dead connection. The official client's informer was
not taken: it is threaded, keeps its models, and cannot say how fresh it is.

A watch may lag behind, or be dead for a while unnoticed. Who must know the present state asks
for `list_anew` and waits until `listed_at` is later: a list holds all that was written before
it was asked for.
"""

import asyncio
import logging
import time
from typing import Generic, Protocol, TypeVar

import msgspec
import tenacity

from gpupack_kube import client, errors, objects
from gpupack_kube.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=objects.Object)
S = TypeVar("S", bound=objects.Object)

PAGE_ITEMS = "500"

PAUSE_SECONDS = 0.2
"""Between two watches, so that a server which closes each at once is not asked without a break."""


class Store(Protocol[S]):
    """What a reflector fills. Calls come from one task, in the server's order."""

    def replace(self, items: list[S], /) -> None:
        """Forget everything and hold exactly these."""

    def upsert(self, item: S, /) -> None:
        """An object appeared or changed."""

    def remove(self, item: S, /) -> None:
        """An object is gone; `item` is its last state."""


class Reflector(Generic[T]):
    """Keeps a store equal to what the API server holds of one kind."""

    def __init__(
        self,
        api: client.Api,
        resource: Resource[T],
        store: Store[T],
        *,
        namespace: str = "",
        selectors: dict[str, str] | None = None,
    ) -> None:
        self.synced = asyncio.Event()
        self.fresh_at = float("-inf")
        self.listed_at = float("-inf")
        """Monotonic time at which the last complete list was asked for."""
        self.unreadable = 0
        """How many objects could not be read."""
        self._api = api
        self._resource = resource
        self._store = store
        self._namespace = namespace
        self._selectors = selectors or {}
        self._version = ""
        self._anew = False
        self._watching: asyncio.Timeout | None = None

    def age_seconds(self) -> float:
        """Seconds since the server last said anything; infinite before the first list."""
        return time.monotonic() - self.fresh_at

    def list_anew(self) -> None:
        """Leave the watch and list again, as soon as the running task gets to it."""
        self._anew = True
        if self._watching and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """List and watch until cancelled; errors are logged and retried with backoff."""
        retrying = tenacity.AsyncRetrying(
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5.0),
            retry=tenacity.retry_if_exception_type(errors.KubeError),
            before_sleep=self._report,
        )
        while True:
            await retrying(self._round)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _round(self) -> None:
        while self._anew or not self._version:
            await self._list()
        try:
            await self._watch()
        except errors.Expired:
            self._version = ""
        except (errors.Refused, errors.Unreachable):
            raise
        except errors.KubeError:
            self._version = ""
            raise

    async def _list(self) -> None:
        started, self._anew, self._version = time.monotonic(), False, ""
        items: list[T] = []
        query = {"limit": PAGE_ITEMS, **self._selectors}
        while True:
            page = await self._api.raw_page(self._resource, namespace=self._namespace, **query)
            items += filter(None, map(self._read, page.items or ()))
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._store.replace(items)
        self._version = page.metadata.resource_version
        self.listed_at = started
        self._heard()
        self.synced.set()

    async def _watch(self) -> None:
        query = {"resourceVersion": self._version, **self._selectors}
        events = self._api.watch(self._resource, namespace=self._namespace, **query)
        try:
            async with asyncio.timeout(None) as self._watching:
                async for event in events:
                    self._apply(event)
                    self._heard()
        except TimeoutError:
            log.info("listing %s anew", self._resource.plural)
        finally:
            self._watching = None

    def _apply(self, event: client.Event) -> None:
        if event.type == "BOOKMARK":
            self._version = _metadata(event.object).resource_version
            return
        item = self._read(event.object)
        metadata = item.metadata if item else _metadata(event.object)
        self._version = metadata.resource_version
        if event.type == "DELETED":
            self._store.remove(item or self._nothing_but(metadata))
        elif item:
            self._store.upsert(item)

    def _read(self, raw: msgspec.Raw) -> T | None:
        try:
            return client.decode(raw, self._resource.type)
        except errors.KubeError as error:
            self.unreadable += 1
            title = f"{self._resource.plural} {_title(raw)}"
            log.error("%s is passed over: %s", title, error)  # noqa: TRY400 - not a bug
            return None

    def _nothing_but(self, metadata: objects.ObjectMeta) -> T:
        """What is gone is known by its metadata."""
        return msgspec.convert({"metadata": metadata}, self._resource.type)

    def _heard(self) -> None:
        self.fresh_at = time.monotonic()

    def _report(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning("watching %s: %s; trying again", self._resource.plural, error)


def _title(raw: msgspec.Raw) -> str:
    try:
        return "/".join(client.decode(raw, objects.Object).key)
    except errors.KubeError:
        return "of unreadable metadata"


def _metadata(raw: msgspec.Raw) -> objects.ObjectMeta:
    return client.decode(raw, objects.Object).metadata
