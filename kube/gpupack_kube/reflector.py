# SPDX-License-Identifier: Apache-2.0
"""List and watch one kind into a store, for ever.

    list (paged) ─► store.replace ─► watch ─► store.upsert / store.remove
      ▲                                │ 410 Expired, a broken line, a changed CRD: list anew
      └────────────────────────────────┘ ended or unreachable: watch on from the last version

An object that cannot be read, as one that a newer release wrote or that is too large, or at which
the store fails, stops nobody else's: it is logged, counted and passed over. A watch keeps what was
last known of it; a list leaves it out. A line of a watch that does not even tell whose it is makes
for a new list, but once in a while only: its author may send many.

Where the schema of custom resources has changed, the API server ends their watches a second later,
and until then tells of objects without the fields that are new. To watch on would keep them so: a
watch of custom resources that ends before its time makes for a new list.

`fresh_at` is the monotonic time of the last word from the server, so that readiness can tell a
quiet cluster from a dead connection. A watch is asked for anew before long, and the answer is such
a word; see `client.Api.watch`. The official client's informer was not taken: it is threaded, keeps
its models, and cannot say how fresh it is.

A watch may lag behind, or be dead for a while unnoticed. Who must know the present state asks
for `list_anew` and waits until `listed_at` is later: a list holds all that was written before
it was asked for.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import tenacity

from gpupack_kube import client, errors, listing, objects
from gpupack_kube.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=objects.Object)
S = TypeVar("S", bound=objects.Object)

RELIST_SECONDS = 60.0
"""Between two lists for the sake of objects that a watch could not even name."""

TELL_SECONDS = 60.0
"""Between two lines in the log about one object that cannot be read."""

EARLY_RELIST_SECONDS = 5.0
"""Between a list and one because a watch ended before its time: a server may close many."""

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
        """How many times an object could not be read."""
        self._api = api
        self._resource = resource
        self._store = store
        self._namespace = namespace
        self._selectors = selectors or {}
        self._version = ""
        self._list_at = float("inf")
        self._first_items = listing.PAGE_ITEMS
        self._told: tuple[str, float] = ("", float("-inf"))
        self._watching: asyncio.Timeout | None = None

    def age_seconds(self) -> float:
        """Seconds since the server last said anything; infinite before the first list."""
        return time.monotonic() - self.fresh_at

    def list_anew(self, *, wait_seconds: float = 0.0) -> None:
        """Leave the watch and list again, as soon as the running task gets to it.

        Args:
            wait_seconds: how long that has time; an earlier list that was asked for stays.
        """
        self._list_at = min(self._list_at, time.monotonic() + wait_seconds)
        if self._watching and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time() + self._wait_seconds())

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
        while not self._version or self._wait_seconds() <= 0:
            await self._list()
        began = time.monotonic()
        try:
            await self._watch()
            if self._resource.custom and time.monotonic() - began < client.WATCH_SECONDS[0]:
                self._list_soon(EARLY_RELIST_SECONDS)
        except errors.Expired:
            self._version = ""
        except (errors.Refused, errors.Unreachable):
            raise
        except errors.KubeError:
            self._version = ""
            raise

    async def _list(self) -> None:
        started, self._list_at, self._version = time.monotonic(), float("inf"), ""
        items: list[T] = []
        pages = listing.pages(
            self._api,
            self._resource,
            namespace=self._namespace,
            selectors=self._selectors,
            first_items=self._first_items,
        )
        # Until a list succeeds: a page that the server does not write in time is asked for smaller.
        self._first_items = max(self._first_items // 2, 1)
        version = ""
        async for page in pages:
            items += filter(None, map(self._read, page.items))
            for metadata in page.skipped:
                self._pass_over(metadata, "it is too large or nested too deeply")
            version = page.version
        self._first_items = listing.PAGE_ITEMS
        self._fill(items)
        self._version = version
        self.listed_at = started
        self._heard()
        self.synced.set()

    async def _watch(self) -> None:
        query = {"resourceVersion": self._version, **self._selectors}
        delay = None if self._list_at == float("inf") else self._wait_seconds()
        events = self._api.watch(self._resource, namespace=self._namespace, **query)
        try:
            async with asyncio.timeout(delay) as self._watching, contextlib.aclosing(events):
                async for event in events:
                    self._heard()
                    self._take(event)
        except TimeoutError:
            log.info("listing %s anew", self._resource.plural)
        finally:
            self._watching = None

    def _take(self, event: client.Opened | client.Event | client.Skipped) -> None:
        match event:
            case client.Event():
                self._apply(event)
            case client.Skipped():
                self._skip(event)

    def _apply(self, event: client.Event) -> None:
        if event.type == "BOOKMARK":
            self._version = _metadata(event.object).resource_version
            return
        item = self._read(event.object)
        metadata = item.metadata if item else _metadata(event.object)
        self._version = metadata.resource_version
        if event.type == "DELETED":
            self._stored(self._store.remove, item or self._nothing_but(metadata))
        elif item:
            self._stored(self._store.upsert, item)

    def _skip(self, event: client.Skipped) -> None:
        self._pass_over(event.metadata, event.reason)
        if not (event.metadata.uid and event.metadata.resource_version):
            self._list_soon(RELIST_SECONDS)
            return
        self._version = event.metadata.resource_version
        if event.type == "DELETED":
            self._stored(self._store.remove, self._nothing_but(event.metadata))

    def _read(self, raw: msgspec.Raw) -> T | None:
        try:
            return client.read(raw, self._resource)
        except errors.KubeError as error:
            self._pass_over(_metadata_or_none(raw), str(error))
            return None

    def _fill(self, items: list[T]) -> None:
        """Have the store hold exactly these, but for those that it fails at."""
        try:
            self._store.replace(items)
        except Exception:
            log.exception("taking in the list of %s failed", self._resource.plural)
            self._store.replace([each for each in items if self._stored(self._store.upsert, each)])

    def _stored(self, put: Callable[[T], None], item: T) -> bool:
        """Whether the store took an object in: what one does to its reader stops nobody else's."""
        try:
            put(item)
        except Exception as error:  # noqa: BLE001 - anybody's words may find any bug of a store
            self._pass_over(item.metadata, f"taking it in failed: {error!r}", error)
            return False
        return True

    def _pass_over(
        self, metadata: objects.ObjectMeta, reason: str, error: Exception | None = None
    ) -> None:
        """Say so, but seldom of one object: its author may change it often."""
        self.unreadable += 1
        who, at = self._told
        if who and who == metadata.uid and time.monotonic() - at < TELL_SECONDS:
            return
        self._told = metadata.uid, time.monotonic()
        title = f"{metadata.namespace}/{metadata.name}" if metadata.name else "of unknown name"
        log.error("%s %s is passed over: %s", self._resource.plural, title, reason, exc_info=error)

    def _nothing_but(self, metadata: objects.ObjectMeta) -> T:
        """What is gone is known by its metadata."""
        return msgspec.convert({"metadata": metadata}, self._resource.type)

    def _list_soon(self, apart_seconds: float) -> None:
        """List again, at least so long after the last list."""
        since_seconds = time.monotonic() - self.listed_at
        self.list_anew(wait_seconds=max(apart_seconds - since_seconds, 0.0))

    def _wait_seconds(self) -> float:
        """How long until a list is due."""
        return self._list_at - time.monotonic()

    def _heard(self) -> None:
        self.fresh_at = time.monotonic()

    def _report(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning("watching %s: %s; trying again", self._resource.plural, error)


def _metadata_or_none(raw: msgspec.Raw) -> objects.ObjectMeta:
    try:
        return _metadata(raw)
    except errors.KubeError:
        return objects.ObjectMeta()


def _metadata(raw: msgspec.Raw) -> objects.ObjectMeta:
    return client.decode(raw, objects.Object).metadata
