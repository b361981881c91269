# SPDX-License-Identifier: Apache-2.0
"""A reflector, which lists and watches one kind into a store.

    list (paged) ─► store.replace ─► watch ─► store.upsert / store.remove
     ▲                                │ 410 Expired, a broken line, a changed CRD: list again
     └────────────────────────────────┘ ended or unreachable: watch on from the last version

An object may be unreadable (written by a newer release, or too large), or the store may fail at it.
Such an object is logged, counted and skipped, and does not affect other objects. A watch keeps the
last known state of it; a list leaves it out. A line of a watch that does not identify its object
causes a new list, but only once in a while: its author may send many.

When the schema of custom resources changes, the API server ends their watches a second later. Until
then it sends objects without the new fields, and continuing the watch would keep them so. Therefore
a watch of custom resources that ends early causes a new list.

`fresh_at` is the monotonic time of the last data from the server, so that readiness can distinguish
a quiet cluster from a dead connection. A watch is renewed before long, and the answer counts as
such data; see `client.Api.watch`. The official client's informer is not used: it is threaded, keeps
its models, and does not expose how fresh it is.

A watch may lag behind, or be dead for a while unnoticed. Code that needs the present state calls
`relist` and waits until `listed_at` is later: a list holds everything that was written before it
was requested.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import tenacity

from gpupack_kubeclient import client, errors, listing, objects
from gpupack_kubeclient.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=objects.Object)
S = TypeVar("S", bound=objects.Object)

RELIST_SECONDS = 60.0
"""Seconds between two lists that are caused by objects that a watch could not identify."""

TELL_SECONDS = 60.0
"""Seconds between two log lines about one object that cannot be read."""

EARLY_RELIST_SECONDS = 5.0
"""Seconds from a list to one caused by a watch that ended early: a server may close many."""

PAUSE_SECONDS = 0.2
"""Pause between two watches, so that a server that closes each at once is not overloaded."""


class Store(Protocol[S]):
    """The target of a reflector. Calls come from one task, in the server's order."""

    def replace(self, items: list[S], /) -> None:
        """Replace the content with exactly these items."""

    def upsert(self, item: S, /) -> None:
        """Add or update an object."""

    def remove(self, item: S, /) -> None:
        """Remove an object; `item` is its last state."""


class Reflector(Generic[T]):
    """A task that keeps a store equal to the API server's objects of one kind."""

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
        """Monotonic time at which the last complete list was requested."""
        self.unreadable = 0
        """Number of times an object could not be read."""
        self._api = api
        self._resource = resource
        self._store = store
        self._namespace = namespace
        self._selectors = selectors or {}
        self._version = ""
        self._list_at = float("inf")
        self._first_items = listing.PAGE_ITEMS
        self._last_skipped: tuple[str, float] = ("", float("-inf"))
        self._watching: asyncio.Timeout | None = None

    def age_seconds(self) -> float:
        """Return the seconds since the server last sent data; infinite before the first list."""
        return time.monotonic() - self.fresh_at

    def relist(self, *, wait_seconds: float = 0.0) -> None:
        """Leave the watch and list again, as soon as the running task gets to it.

        Args:
            wait_seconds: how long the list may be delayed; an earlier list that was requested
                stays.
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
            if self._wait_seconds() > 0:
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
        # Until a list succeeds: a page that the server does not send in time is requested smaller.
        self._first_items = max(self._first_items // 2, 1)
        version = ""
        async for page in pages:
            items += filter(None, map(self._read, page.items))
            for metadata in page.skipped:
                self._log_skipped(metadata, "it is too large or nested too deeply")
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
            log.info("listing %s again", self._resource.plural)
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
        self._log_skipped(event.metadata, event.reason)
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
            self._log_skipped(_metadata_or_none(raw), str(error))
            return None

    def _fill(self, items: list[T]) -> None:
        """Replace the store's content, without the items at which the store fails."""
        try:
            self._store.replace(items)
        except Exception:
            log.exception("taking in the list of %s failed", self._resource.plural)
            self._store.replace([each for each in items if self._stored(self._store.upsert, each)])

    def _stored(self, put: Callable[[T], None], item: T) -> bool:
        """Put an item into the store; return whether that succeeded.

        A failure affects no other item.
        """
        try:
            put(item)
        except Exception as error:  # noqa: BLE001 - tenants' content may trigger any bug of a store
            self._log_skipped(item.metadata, f"processing it failed: {error!r}", error)
            return False
        return True

    def _log_skipped(
        self, metadata: objects.ObjectMeta, reason: str, error: Exception | None = None
    ) -> None:
        """Log and count a skipped object; log rarely for one object, which may change often."""
        self.unreadable += 1
        uid, at = self._last_skipped
        if uid and uid == metadata.uid and time.monotonic() - at < TELL_SECONDS:
            return
        self._last_skipped = metadata.uid, time.monotonic()
        title = f"{metadata.namespace}/{metadata.name}" if metadata.name else "of unknown name"
        log.error("%s %s is skipped: %s", self._resource.plural, title, reason, exc_info=error)

    def _nothing_but(self, metadata: objects.ObjectMeta) -> T:
        """Return an object that has only metadata, for a deletion."""
        return msgspec.convert({"metadata": metadata}, self._resource.type)

    def _list_soon(self, apart_seconds: float) -> None:
        """List again, at least `apart_seconds` after the last list."""
        since_seconds = time.monotonic() - self.listed_at
        self.relist(wait_seconds=max(apart_seconds - since_seconds, 0.0))

    def _wait_seconds(self) -> float:
        """Return the seconds until a list is due."""
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
