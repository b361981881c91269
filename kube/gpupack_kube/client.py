# SPDX-License-Identifier: Apache-2.0
"""One connection to the API server.

Requests go through `transport`, and neither through the official client's models nor its JSON:
those cost most of a scheduler's time. Answers are decoded from bytes straight into the views of
`objects`.

No answer takes more memory than `largest_bytes`, whatever a tenant wrote into an object: a longer
answer is Oversized, a longer line of a watch is told by name. `listing` reads lists around such
objects. Nothing is asked for compressed: a page of one letter, repeated, would be read whole before
its size is known.
"""

import collections
import contextlib
import dataclasses
import random
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec

from gpupack_kube import errors, lines, objects, transport
from gpupack_kube.clock import ServerClock
from gpupack_kube.environment import Environment
from gpupack_kube.identity import Identity
from gpupack_kube.kubeconfig.presented import Presented
from gpupack_kube.patience import Patience
from gpupack_kube.resources import Resource

T = TypeVar("T", bound=objects.Object)
D = TypeVar("D")

REQUEST_SECONDS = 15.0
"""How long one request may take before it counts as unanswered."""

LIST_SECONDS = 60.0
"""The same for a page of a list, which is of some MiB."""

WATCH_SECONDS = (35, 45)
"""After so long, at random, a watch is asked for anew: not by all clients at once."""

WATCH_SILENCE_SECONDS = 60.0
"""The server ends a watch before: one that is silent for as long has lost its other end."""

LARGEST_MIB = 16
"""More than an etcd can hold by default: 1.5 MiB, of which JSON may make six times as much."""

JSON = "application/json"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class RawPage(msgspec.Struct):
    """A list answer: its metadata, and the items not decoded yet."""

    metadata: objects.ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """One line of a watch whose object is too large or too deep to be read.

    Attributes:
        type: as of an event.
        metadata: what its beginning tells, which may be nothing.
        reason: what was wrong, for a person.
    """

    type: str
    metadata: objects.ObjectMeta
    reason: str


class Opened:
    """The first word of a watch: the server is there and tells what happens from now on."""


class Api:
    """Typed calls to the API server. Errors are those of `gpupack_kube.errors`."""

    def __init__(
        self,
        sender: transport.Transport,
        *,
        largest_bytes: int = LARGEST_MIB << 20,
        patience: Patience | None = None,
    ) -> None:
        self._sender, self._patience = sender, patience
        self._largest_bytes = largest_bytes
        self.clock = ServerClock()
        """The API server's time, as its answers tell it."""
        self.answers: collections.Counter[str] = collections.Counter()
        """How many requests were answered how: `2xx` and its like, `none` where nothing came."""

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        environ: Mapping[str, str],
        *,
        context: str | None = None,
        patience: Patience | None = None,
    ) -> AsyncGenerator["Api"]:
        """Connect as the pod's service account, or as KUBECONFIG says outside a cluster.

        `context` is one of the kubeconfig; None: its current one. GPUPACK_LARGEST_OBJECT_MIB is how
        much of memory one answer, or one line of a watch, may take; an object that is larger is
        passed over. `patience` sends requests again; None: each is sent once.

        Raises:
            SettingsInvalid: that is no such size, or the service account's files or the
                kubeconfig cannot be read.
        """
        largest = Environment(environ).whole(
            "GPUPACK_LARGEST_OBJECT_MIB", LARGEST_MIB, least=LARGEST_MIB, most=1024
        )
        async with transport.connect(environ, context=context) as sender:
            yield cls(sender, largest_bytes=largest << 20, patience=patience)

    def on_behalf(self, authorization: str) -> "Api":
        """Calls with another's header: the API server judges him, and its audit names him.

        Raises:
            KubeError: there is no header, or we are known by a certificate: it would be our own
                call.
        """
        if not authorization:
            raise errors.KubeError("nobody is named on whose behalf this is; send a token")
        return Api(self._sender.on_behalf(authorization), largest_bytes=self._largest_bytes)

    async def identity(self) -> Identity:
        """Who we are, for a server that asks the same API server."""
        return await self._sender.identity()

    async def renew(self, used: Presented) -> bool:
        """Return whether there are other credentials than `used`, which a server does not know.

        Raises:
            NotSignedIn: there are none.
        """
        return await self._sender.renew(used)

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        """Read one object."""
        return read(await self._send("GET", resource.path(name, namespace=namespace)), resource)

    async def page(
        self, resource: Resource[T], *, namespace: str = "", **query: str
    ) -> tuple[objects.ListMeta, list[T]]:
        """Read one page of a list; `query` holds `limit`, `continue`, selectors."""
        page = await self.raw_page(resource, namespace=namespace, **query)
        return page.metadata, [decode(item, resource.type) for item in page.items or ()]

    async def raw_page(
        self, resource: Resource[Any], *, namespace: str = "", accept: str = JSON, **query: str
    ) -> RawPage:
        """Read one page of a list and leave it to the caller to decode its items.

        Raises:
            Oversized: one of its items, or all of them together; `listing.pages` reads around them.
        """
        path = resource.collection(namespace)
        answer = await self._send(
            "GET", path, query=query, headers={"Accept": accept}, seconds=LIST_SECONDS
        )
        return decode(answer, RawPage)

    async def create(
        self,
        resource: Resource[T],
        body: objects.Json,
        *,
        namespace: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> T:
        """Create an object; raises AlreadyExists where there is one of that name.

        A dry run goes through admission and validation and stores nothing. With `strict` a field
        that there is not is refused, as kubectl has it.
        """
        query = {"dryRun": "All"} if dry_run else {}
        query |= {"fieldValidation": "Strict"} if strict else {}
        answer = await self._send("POST", resource.collection(namespace), query=query, body=body)
        return decode(answer, resource.type)

    async def replace(
        self,
        resource: Resource[T],
        name: str,
        body: objects.Json,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Replace an object; raises Conflict where its resourceVersion is not the newest."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return decode(await self._send("PUT", path, body=body), resource.type)

    async def merge(
        self,
        resource: Resource[T],
        name: str,
        body: objects.Json,
        *,
        namespace: str = "",
        subresource: str = "",
        strategic: bool = False,
    ) -> T:
        """Apply a JSON merge patch, or a strategic one, which merges built-in lists by key."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        content = STRATEGIC_PATCH if strategic else MERGE_PATCH
        answer = await self._send("PATCH", path, body=body, headers={"Content-Type": content})
        return decode(answer, resource.type)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        propagation: str = "Background",
    ) -> None:
        """Delete an object, only if it has `uid` where one is given; raises NotFound."""
        options: objects.Json = {"propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._send("DELETE", resource.path(name, namespace=namespace), body=options)

    async def post(self, path: str, body: objects.Json, answer: type[D]) -> D:
        """POST to any path: subresources (`pods/binding`) and reviews."""
        return decode(await self._send("POST", path, body=body), answer)

    async def document(self, path: str, answer: type[D], *, accept: str = JSON) -> D:
        """GET any path: what is no object."""
        return decode(await self._send("GET", path, headers={"Accept": accept}), answer)

    async def follow(
        self, path: str, *, silence_seconds: float, line_bytes: int | None = None, **query: str
    ) -> AsyncGenerator[bytes | lines.LongLine]:
        """Yield the lines of any path's answer as they come, such as of a pod's log.

        `line_bytes`: the longest line that is held whole; None: as long as an object may be.

        It ends when the server ends it. A connection whose other end is gone looks like a program
        that has nothing to say: after that much silence it is given up, and the caller asks anew.

        Raises:
            Unreachable: the server does not answer, or was silent for as long.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=silence_seconds
        )
        async with _transport_errors(f"GET {path}"):
            response = await self._stream(path, query, timeout, headers={"Accept": "*/*"})
            try:
                chunks = response.content.iter_any()
                most_bytes = self._largest_bytes if line_bytes is None else line_bytes
                async for line in lines.lines(chunks, most_bytes=most_bytes):
                    yield line
            finally:
                _hang_up(response)

    async def watch(
        self, resource: Resource[T], *, namespace: str = "", **query: str
    ) -> AsyncGenerator[Opened | Event | Skipped]:
        """Yield the events from `query["resourceVersion"]` on until the server ends the stream.

        It is asked to do so soon. A kind of which nothing changes and a connection whose other end
        is gone look alike, and bookmarks do not tell them apart: the API server sends none for a
        kind of which it has seen no event since it set up its cache, as after a change of the CRD.
        The answer to the next watch does; `Opened` stands for it.

        Raises:
            Expired: the resourceVersion is too old.
            Unreachable: the server does not answer, or did not end the stream.
        """
        path = resource.collection(namespace)
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=WATCH_SILENCE_SECONDS
        )
        async with _transport_errors(f"WATCH {path}"):
            response = await self._stream(path, query, timeout)
            try:
                yield Opened()
                chunks = response.content.iter_any()
                async for line in lines.lines(chunks, most_bytes=self._largest_bytes):
                    yield _event(line, call=f"WATCH {path}")
            finally:
                _hang_up(response)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: objects.Json | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=REQUEST_SECONDS)

        async def once() -> bytes:
            async with _transport_errors(f"{method} {path}"):
                response = await self._open(
                    method, path, query=query, body=body, headers=headers, timeout=timeout
                )
                async with response:
                    return await self._read(response, call=f"{method} {path}")

        return await self._patiently(once, reads=method == "GET")

    async def _patiently(self, once: Callable[[], Awaitable[D]], *, reads: bool) -> D:
        if self._patience is None:
            return await once()
        return await self._patience.call(once, reads=reads)

    async def _stream(
        self,
        path: str,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, applied by it
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        async def once() -> aiohttp.ClientResponse:
            async with _transport_errors(f"GET {path}"):
                return await self._open("GET", path, query=query, headers=headers, timeout=timeout)

        return await self._patiently(once, reads=True)

    async def _read(self, response: aiohttp.ClientResponse, *, call: str) -> bytes:
        parts, size = list[bytes](), 0
        async for chunk in response.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > self._largest_bytes:
                _hang_up(response)
                raise errors.Oversized(
                    f"{call}: the answer is larger than {self._largest_bytes >> 20} MiB; "
                    "GPUPACK_LARGEST_OBJECT_MIB says how much is read"
                )
        return b"".join(parts)

    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, applied by it
        body: objects.Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        sent = {
            "Accept": JSON,
            "Content-Type": JSON,
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        asked = self.clock.reading()
        try:
            response = await self._sender.request(
                method, target, headers=sent, body=body, timeout=timeout
            )
        except (aiohttp.ClientError, OSError):
            self.answers["none"] += 1
            raise
        self.answers[f"{response.status // 100}xx"] += 1
        self.clock.observe(response.headers.get("Date", ""), asked=asked)
        if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            async with response:
                raise errors.from_response(
                    response.status,
                    await self._read(response, call=f"{method} {path}"),
                    call=f"{method} {path}",
                    retry_after=response.headers.get("Retry-After", ""),
                )
        return response


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Leave an answer that has not ended, without waiting for TLS's goodbye from the other end.

    `close` alone waits for it, up to 30 seconds; a loop that ends before leaves an open socket.
    """
    if (connection := response.connection) and connection.transport:
        connection.transport.abort()
    response.close()


def decode(data: bytes | msgspec.Raw, kind: type[D]) -> D:
    """Decode JSON into a view.

    Raises:
        KubeError: the answer is not what the API promises; the message says where.
        Oversized: it is nested too deeply.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise errors.Oversized(f"cannot read a {kind.__name__} from the API: {error}") from error
    except msgspec.MsgspecError as error:
        raise errors.KubeError(f"cannot read a {kind.__name__} from the API: {error}") from error


def read(data: bytes | msgspec.Raw, resource: Resource[T]) -> T:
    """Decode an object of a kind.

    Raises:
        KubeError: as of `decode`.
        Oversized: it is larger, or nested more deeply, than objects of its kind are read.
    """
    size = len(memoryview(data))
    if resource.largest_bytes is not None and size > resource.largest_bytes:
        raise errors.Oversized(f"it takes {size} bytes")
    if resource.levels is not None and not lines.is_shallow(bytes(data), levels=resource.levels):
        raise errors.Oversized(f"it has more than {resource.levels} levels of fields")
    return decode(data, resource.type)


def encode(value: Any) -> objects.Json:
    """Turn a struct into the plain dictionary that the write calls take."""
    built: objects.Json = msgspec.to_builtins(value)
    return built


def _event(line: bytes | lines.LongLine, *, call: str) -> Event | Skipped:
    if isinstance(line, lines.LongLine):
        return _skipped(line.head, f"it takes {line.size} bytes")
    try:
        event = decode(line, Event)
    except errors.Oversized as error:
        return _skipped(line[: lines.HEAD_BYTES], str(error))
    if event.type == "ERROR":
        status = decode(event.object, _Code)
        raise errors.from_response(status.code or 500, bytes(event.object), call=call)
    return event


def _skipped(head: bytes, reason: str) -> Skipped:
    told = lines.texts(head)
    metadata = objects.ObjectMeta(
        name=told.get(("object", "metadata", "name"), ""),
        namespace=told.get(("object", "metadata", "namespace"), ""),
        uid=told.get(("object", "metadata", "uid"), ""),
        resource_version=told.get(("object", "metadata", "resourceVersion"), ""),
    )
    return Skipped(type=told.get(("type",), ""), metadata=metadata, reason=reason)


class _Code(msgspec.Struct):
    code: int = 0


@contextlib.asynccontextmanager
async def _transport_errors(call: str) -> AsyncGenerator[None]:
    """Rename the HTTP library's errors to ours."""
    try:
        yield
    except aiohttp.ClientHttpProxyError as error:
        message = f"{call}: the proxy refuses the connection: {error.status} {error.message}"
        raise errors.Unreachable(message, sent=False) from None
    except (
        TimeoutError,
        aiohttp.ClientError,
        aiohttp.http.HttpProcessingError,
        OSError,
        ValueError,
    ) as error:
        text = str(error) or type(error).__name__
        sent = not isinstance(error, aiohttp.ClientConnectorError)
        message = f"{call}: no answer from the API server: {text}"
        raise errors.Unreachable(message, sent=sent) from error
