# SPDX-License-Identifier: Apache-2.0
"""One connection to the API server.

Requests go through the official client's transport (configuration, TLS, bearer tokens that are
read anew as they rotate), but neither through its models nor its JSON: those cost most of a
scheduler's time. Answers are decoded from bytes straight into the views of `objects`.
"""

import contextlib
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec
from kubernetes.aio import client as official
from kubernetes.aio import config as official_config

from gpupack_kube import errors, objects
from gpupack_kube.clock import ServerClock
from gpupack_kube.resources import Resource

T = TypeVar("T", bound=objects.Object)
D = TypeVar("D")

REQUEST_SECONDS = 15.0
"""How long one request may take before it counts as unanswered."""

WATCH_SILENCE_SECONDS = 75.0
"""Bookmarks come about once a minute: a watch that is silent for longer is dead."""

MERGE_PATCH = "application/merge-patch+json"


class Page(msgspec.Struct):
    """A list answer: its metadata, and the items not decoded yet."""

    metadata: objects.ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Api:
    """Typed calls to the API server. Errors are those of `gpupack_kube.errors`."""

    def __init__(self, transport: official.ApiClient) -> None:
        self._transport = transport
        self.clock = ServerClock()
        """The API server's time, as its answers tell it."""

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, environ: Mapping[str, str]) -> AsyncGenerator["Api"]:
        """Connect as the pod's service account, or as KUBECONFIG says outside a cluster."""
        configuration = official.Configuration()
        configuration.connection_pool_maxsize = 64
        if "KUBERNETES_SERVICE_HOST" in environ and "KUBECONFIG" not in environ:
            official_config.load_incluster_config(client_configuration=configuration)
        else:
            await official_config.load_kube_config(
                config_file=environ.get("KUBECONFIG"), client_configuration=configuration
            )
        async with official.ApiClient(configuration) as transport:
            yield cls(transport)

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        """Read one object."""
        body = await self._send("GET", resource.path(name, namespace=namespace))
        return decode(body, resource.type)

    async def page(
        self, resource: Resource[T], *, namespace: str = "", **query: str
    ) -> tuple[objects.ListMeta, list[T]]:
        """Read one page of a list; `query` holds `limit`, `continue`, selectors."""
        page = await self.raw_page(resource, namespace=namespace, **query)
        return page.metadata, [decode(item, resource.type) for item in page.items or ()]

    async def raw_page(self, resource: Resource[Any], *, namespace: str = "", **query: str) -> Page:
        """Read one page of a list and leave it to the caller to decode its items."""
        return decode(await self._send("GET", resource.collection(namespace), query=query), Page)

    async def create(self, resource: Resource[T], body: objects.Json, *, namespace: str = "") -> T:
        """Create an object; raises AlreadyExists where there is one of that name."""
        answer = await self._send("POST", resource.collection(namespace), body=body)
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
    ) -> T:
        """Apply a JSON merge patch."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        answer = await self._send("PATCH", path, body=body, content_type=MERGE_PATCH)
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

    async def watch(
        self, resource: Resource[T], *, namespace: str = "", **query: str
    ) -> AsyncIterator[Event]:
        """Yield the events from `query["resourceVersion"]` on until the server ends the stream.

        Raises:
            Expired: the resourceVersion is too old.
            Unreachable: nothing came for longer than a bookmark takes.
        """
        path = resource.collection(namespace)
        query |= {"watch": "true", "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=WATCH_SILENCE_SECONDS
        )
        async with _transport_errors(f"WATCH {path}"):
            response = await self._open("GET", path, query=query, timeout=timeout)
            try:
                async for line in response.content:
                    yield _event(line, call=f"WATCH {path}")
            finally:
                response.close()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: objects.Json | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with _transport_errors(f"{method} {path}"):
            response = await self._open(
                method, path, query=query, body=body, content_type=content_type, timeout=timeout
            )
            async with response:
                return await response.read()

    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, applied by it
        body: objects.Json | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        transport = self._transport
        url = f"{transport.configuration.host}{path}"
        if query:
            url = f"{url}?{urllib.parse.urlencode(query)}"
        headers: dict[str, str] = {
            **transport.default_headers,
            "Accept": "application/json",
            "Content-Type": content_type,
        }
        await transport.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        asked = self.clock.reading()
        answer = await transport.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        self.clock.hear(response.headers.get("Date", ""), asked=asked)
        if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            async with response:
                raise errors.from_response(
                    response.status, await response.read(), call=f"{method} {path}"
                )
        return response


def decode(data: bytes | msgspec.Raw, kind: type[D]) -> D:
    """Decode JSON into a view.

    Raises:
        KubeError: the answer is not what the API promises; the message says where.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.KubeError(f"cannot read a {kind.__name__} from the API: {error}") from error


def encode(value: Any) -> objects.Json:
    """Turn a struct into the plain dictionary that the write calls take."""
    built: objects.Json = msgspec.to_builtins(value)
    return built


def _event(line: bytes, *, call: str) -> Event:
    event = decode(line, Event)
    if event.type == "ERROR":
        status = decode(event.object, _Code)
        raise errors.from_response(status.code or 500, bytes(event.object), call=call)
    return event


class _Code(msgspec.Struct):
    code: int = 0


@contextlib.asynccontextmanager
async def _transport_errors(call: str) -> AsyncGenerator[None]:
    """Rename the HTTP library's errors to ours."""
    try:
        yield
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        text = str(error) or type(error).__name__
        raise errors.Unreachable(f"{call}: no answer from the API server: {text}") from error
