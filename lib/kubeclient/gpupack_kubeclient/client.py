# SPDX-License-Identifier: Apache-2.0
"""One connection to the API server.

Requests go through `transport`. They use neither the official client's models nor its JSON, which
would take most of a scheduler's time. Answers are decoded from bytes straight into the views of
`objects`.

No answer takes more memory than `largest_bytes`, whatever a tenant wrote into an object. A longer
answer raises Oversized; a longer line of a watch is reported with the name of its object. `listing`
reads lists around such objects. No answer is requested compressed: a highly compressible answer
would be expanded in full before its size is known.
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

from gpupack_kubeclient import errors, lines, objects, transport
from gpupack_kubeclient.clock import ServerClock
from gpupack_kubeclient.environment import Environment
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig.presented import Presented
from gpupack_kubeclient.patience import Patience
from gpupack_kubeclient.resources import Resource

T = TypeVar("T", bound=objects.Object)
D = TypeVar("D")

REQUEST_SECONDS = 15.0
"""Seconds after which a request counts as unanswered."""

LIST_SECONDS = 60.0
"""Seconds after which a request for a page of a list, of some MiB, counts as unanswered."""

WATCH_SECONDS = (35, 45)
"""Range of seconds of one watch.

Its length is random, so that clients do not reconnect together.
"""

WATCH_SILENCE_SECONDS = 60.0
"""Seconds of silence after which a watch counts as dead: the server ends it earlier."""

DEFAULT_MAX_OBJECT_MIB = 16
"""More than an etcd holds by default: 1.5 MiB, which JSON may make six times as large."""

JSON = "application/json"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class RawPage(msgspec.Struct):
    """A list answer with its metadata and its items, which are not decoded yet."""

    metadata: objects.ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """One line of a watch whose object is too large or nested too deeply to be read.

    Attributes:
        type: type of the event.
        metadata: metadata from the beginning of the line; may be empty.
        reason: what is wrong with the object, for users.
    """

    type: str
    metadata: objects.ObjectMeta
    reason: str


class Opened:
    """The start of a watch: the server answered and sends events from now on."""


class Api:
    """Typed calls to the API server. Errors are those of `gpupack_kubeclient.errors`."""

    def __init__(
        self,
        sender: transport.Transport,
        *,
        largest_bytes: int = DEFAULT_MAX_OBJECT_MIB << 20,
        patience: Patience | None = None,
    ) -> None:
        self._sender, self._patience = sender, patience
        self._largest_bytes = largest_bytes
        self.clock = ServerClock()
        """The API server's time, from its answers."""
        self.answers: collections.Counter[str] = collections.Counter()
        """Number of requests by the class of their answer, such as `2xx`; `none`: no answer."""

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

        `context` is a context of the kubeconfig; None: the current one. GPUPACK_MAX_OBJECT_MIB
        limits the memory that one answer, or one line of a watch, may take; larger objects are
        skipped. `patience` retries requests; None: each request is sent once.

        Raises:
            SettingsInvalid: the size is not valid, or the service account's files or the kubeconfig
                cannot be read.
        """
        largest = Environment(environ).whole(
            "GPUPACK_MAX_OBJECT_MIB",
            DEFAULT_MAX_OBJECT_MIB,
            least=DEFAULT_MAX_OBJECT_MIB,
            most=1024,
        )
        async with transport.connect(environ, context=context) as sender:
            yield cls(sender, largest_bytes=largest << 20, patience=patience)

    def on_behalf(self, authorization: str) -> "Api":
        """Return an Api that sends another user's header.

        The API server authorizes and audits that user.

        Raises:
            KubeError: there is no header, or this client is identified by a certificate: the call
                would be gpupack's own.
        """
        if not authorization:
            raise errors.KubeError("the call names no user on whose behalf it is; send a token")
        return Api(self._sender.on_behalf(authorization), largest_bytes=self._largest_bytes)

    async def identity(self) -> Identity:
        """Return this caller's identity, for a server that asks the same API server."""
        return await self._sender.identity()

    async def renew(self, used: Presented) -> bool:
        """Return whether there are other credentials than `used`, which a server rejected.

        Raises:
            NotSignedIn: there are no credentials.
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
        """Read one page of a list without decoding its items.

        Raises:
            Oversized: one item or the whole page is too large; `listing.pages` reads around such
                items.
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
        """Create an object; raises AlreadyExists where the name is taken.

        A dry run goes through admission and validation and stores nothing. With `strict` an unknown
        field is refused, as with kubectl.
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
        """Replace an object; raises Conflict where its resourceVersion is out of date."""
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
        """Delete an object, with `uid` only the object of that UID; raises NotFound."""
        options: objects.Json = {"propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._send("DELETE", resource.path(name, namespace=namespace), body=options)

    async def post(self, path: str, body: objects.Json, answer: type[D]) -> D:
        """Send POST to any path, such as a subresource (`pods/binding`) or a review."""
        return decode(await self._send("POST", path, body=body), answer)

    async def document(self, path: str, answer: type[D], *, accept: str = JSON) -> D:
        """Send GET to any path that returns no Kubernetes object."""
        return decode(await self._send("GET", path, headers={"Accept": accept}), answer)

    async def follow(
        self, path: str, *, silence_seconds: float, line_bytes: int | None = None, **query: str
    ) -> AsyncGenerator[bytes | lines.LongLine]:
        """Yield the lines of any path's answer as they arrive, such as those of a pod's log.

        `line_bytes` is the longest line that is held whole; None: the largest size of an object.

        The stream ends when the server ends it. A dead connection looks like a program that writes
        nothing. After `silence_seconds` without data the stream is given up, and the caller opens
        another.

        Raises:
            Unreachable: the server does not answer, or sent nothing for `silence_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=silence_seconds
        )
        async with _transport_errors(f"GET {path}"):
            response = await self._stream(path, query, timeout, headers={"Accept": "*/*"})
            try:
                chunks = response.content.iter_any()
                max_bytes = self._largest_bytes if line_bytes is None else line_bytes
                async for line in lines.lines(chunks, max_bytes=max_bytes):
                    yield line
            finally:
                _hang_up(response)

    async def watch(
        self, resource: Resource[T], *, namespace: str = "", **query: str
    ) -> AsyncGenerator[Opened | Event | Skipped]:
        """Yield the events from `query["resourceVersion"]` on until the server ends the stream.

        The server is asked to end it after some 40 s. A kind without changes and a dead connection
        look alike, and bookmarks do not distinguish them: the API server sends none for a kind
        without an event since it set up its cache, for example after a change of the CRD. The
        answer to the next watch does distinguish them; `Opened` represents it.

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
                async for line in lines.lines(chunks, max_bytes=self._largest_bytes):
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
                    "GPUPACK_MAX_OBJECT_MIB says how much is read"
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
        if response.status >= 400:  # noqa: PLR2004 - where HTTP errors begin
            async with response:
                raise errors.from_response(
                    response.status,
                    await self._read(response, call=f"{method} {path}"),
                    call=f"{method} {path}",
                    retry_after=response.headers.get("Retry-After", ""),
                )
        return response


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Close an answer that has not ended, without waiting for the peer's TLS shutdown.

    `close` alone waits for it for up to 30 seconds. An event loop that ends earlier leaves an open
    socket.
    """
    if (connection := response.connection) and connection.transport:
        connection.transport.abort()
    response.close()


def decode(data: bytes | msgspec.Raw, kind: type[D]) -> D:
    """Decode JSON into a view.

    Raises:
        KubeError: the answer does not match the API's schema; the message says where.
        Oversized: the answer is nested too deeply.
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
        KubeError: the answer does not match the API's schema, as in `decode`.
        Oversized: the object is larger, or nested more deeply, than its kind allows.
    """
    size = len(memoryview(data))
    if resource.largest_bytes is not None and size > resource.largest_bytes:
        raise errors.Oversized(f"it takes {size} bytes")
    if resource.levels is not None and not lines.is_shallow(bytes(data), levels=resource.levels):
        raise errors.Oversized(f"it has more than {resource.levels} levels of fields")
    return decode(data, resource.type)


def encode(value: Any) -> objects.Json:
    """Convert a struct into the plain dictionary that the write calls take."""
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
    head_texts = lines.texts(head)
    metadata = objects.ObjectMeta(
        name=head_texts.get(("object", "metadata", "name"), ""),
        namespace=head_texts.get(("object", "metadata", "namespace"), ""),
        uid=head_texts.get(("object", "metadata", "uid"), ""),
        resource_version=head_texts.get(("object", "metadata", "resourceVersion"), ""),
    )
    return Skipped(type=head_texts.get(("type",), ""), metadata=metadata, reason=reason)


class _Code(msgspec.Struct):
    code: int = 0


@contextlib.asynccontextmanager
async def _transport_errors(call: str) -> AsyncGenerator[None]:
    """Convert the HTTP library's errors into errors of this package."""
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
        sent = not isinstance(error, aiohttp.ClientConnectorError)
        message = f"{call}: no answer from the API server: {_text(error)}"
        raise errors.Unreachable(message, sent=sent) from error


def _text(error: Exception) -> str:
    """Return what happened; aiohttp's own text of a failed connection has its TLS context."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    cause: Exception = (
        error.certificate_error
        if isinstance(error, aiohttp.ClientConnectorCertificateError)
        else error.os_error
    )
    reason = getattr(cause, "strerror", None) or str(cause)
    return f"cannot connect to {error.host}:{error.port}: {reason}"
