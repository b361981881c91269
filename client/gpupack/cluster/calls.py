# SPDX-License-Identifier: Apache-2.0
"""Calls of the REST API: typed answers, refusals as errors, and retries.

Every call can be repeated: reads and deletes by their nature, `allocate` by its Idempotency-Key.
"""

import ssl
import threading
from collections.abc import Iterator
from typing import Any, Final, Protocol, TypeVar

import httpx
import msgspec
import tenacity

from gpupack.cluster.endpoint import Endpoint
from gpupack.errors import CallRefused, GpupackError, ServerNotFound, ServerUnreachable
from gpupack_kubeclient.ca_file import is_untrusted
from gpupack_restapi import PREFIX
from gpupack_restapi.problem import Problem

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""Time limit of an answer; `allocate` takes eight seconds."""

MAX_TRIES: Final = 6
MAX_PAUSE_SECONDS: Final = 5.0
"""Maximum pause where the server does not say when to retry."""

MAX_WAIT_SECONDS: Final = 60.0
"""Seconds that one call waits in total; it fails at once where a longer wait is requested."""

RETRYABLE: Final = frozenset({429, 502, 503, 504})
UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404

T = TypeVar("T")


class Page(Protocol):
    """A part of a list."""

    @property
    def next(self) -> str:
        """`after` of the call for the next part; empty: there is none."""


P = TypeVar("P", bound=Page)


class _RetryLater(Exception):
    """The server requests a retry."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer

    @property
    def pause_seconds(self) -> float:
        header = self.answer.headers.get("Retry-After", "")
        return float(header) if header.isdecimal() else 0.0


class Calls:
    """The calls of one server, from any thread.

    Args:
        endpoint: address and credentials.
        transport: transport of httpx; None: its own.
    """

    def __init__(self, endpoint: Endpoint, transport: httpx.BaseTransport | None = None) -> None:
        self._endpoint = endpoint
        self._address = "the REST API"
        """The last address, for messages."""
        self._transport = transport
        self._trusted = endpoint.trusted()
        self._http = self._client(self._trusted)
        self._retired = list[httpx.Client]()
        """Clients that trust earlier CAs; other threads' calls may still use them."""
        self._changing = threading.Lock()

    def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Send GET and return the decoded answer.

        Raises:
            ServerUnreachable: the server does not answer, or the answer has another form.
            CallRefused: the server refuses.
        """
        params = {name: value for name, value in query.items() if value}
        return self._decoded(self._call("GET", path, params=params), kind)

    def pages(self, path: str, kind: type[P], **query: Any) -> Iterator[P]:
        """Yield all pages of a list.

        Raises:
            ServerUnreachable: the server does not answer, or a page names itself as its next.
            CallRefused: the server refuses.
        """
        after = ""
        while True:
            page = self.get(path, kind, **query, after=after)
            yield page
            if not page.next:
                return
            if page.next == after:
                raise ServerUnreachable(
                    f"the answer to {path} names itself as its next page: {after!r}"
                )
            after = page.next

    def post(self, path: str, kind: type[T], body: msgspec.Struct | None, *, key: str = "") -> T:
        """Send POST; with a key it takes effect once, however often it is sent.

        Raises:
            ServerUnreachable: the server does not answer, or the answer has another form.
            CallRefused: the server refuses.
        """
        headers = {"Idempotency-Key": key} if key else {}
        sent: dict[str, Any] = {} if body is None else {"json": msgspec.to_builtins(body)}
        return self._decoded(self._call("POST", path, **sent, headers=headers), kind)

    def delete(self, path: str) -> None:
        """Delete an object; one that is already gone is no error.

        Raises:
            ServerUnreachable: the server does not answer, or the answer has another form.
            CallRefused: the server refuses.
        """
        try:
            self._call("DELETE", path)
        except CallRefused as error:
            if error.status != NOT_FOUND:
                raise

    def close(self) -> None:
        """Close all connections, and what was opened to reach the server."""
        for each in (self._http, *self._retired):
            each.close()
        self._endpoint.close()

    def _call(self, method: str, path: str, **given: Any) -> httpx.Response:
        trying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((httpx.TransportError, _RetryLater)),
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(MAX_TRIES), tenacity.stop_before_delay(MAX_WAIT_SECONDS)
            ),
            wait=_pause,
            reraise=True,
        )
        try:
            answer = trying(self._once, method, path, **given)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except _RetryLater as error:
            answer = error.answer
        if answer.is_success:
            return answer
        raise self._refusal(answer)

    def _once(self, method: str, path: str, **given: Any) -> httpx.Response:
        answer = self._send(method, path, **given)
        if answer.status_code == UNAUTHORIZED and self._endpoint.forget():
            answer = self._send(method, path, **given)
        if answer.status_code in RETRYABLE:
            raise _RetryLater(answer)
        return answer

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {**given.pop("headers", {}), **self._authorization()}
        self._address = self._endpoint.address()
        url = f"{self._address}{PREFIX}/{path}"
        return self._current_client().request(method, url, headers=headers, **given)

    def _current_client(self) -> httpx.Client:
        """Return a client that trusts the present content of the CA file.

        After a change of the file its connections are new: an old one was verified with other CAs.
        """
        with self._changing:
            if self._http.is_closed:
                raise GpupackError("this manager is closed; open another one")
            trusted = self._endpoint.trusted()
            if trusted is not self._trusted:
                self._retired.append(self._http)
                self._http, self._trusted = self._client(trusted), trusted
            return self._http

    def _client(self, trusted: ssl.SSLContext) -> httpx.Client:
        return httpx.Client(
            verify=trusted,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            transport=self._transport,
            # A proxy reaches neither our loopback nor the cluster's Services, and would see the
            # token.
            trust_env=not self._endpoint.direct,
        )

    def _authorization(self) -> dict[str, str]:
        if self._endpoint.token is None:
            return {}
        try:
            token = self._endpoint.token().strip()
            token.encode("ascii")
        except (OSError, ValueError) as error:
            raise ServerNotFound(
                f"the token cannot be read: {error}; set GPUPACK_TOKEN to what "
                "`kubectl create token ACCOUNT` prints"
            ) from error
        return {"Authorization": f"Bearer {token}"}

    def _decoded(self, answer: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServerUnreachable(
                f"{self._address}: the answer to {answer.request.url.path} is not that of a "
                f"gpupack-api: {error}; check GPUPACK_SERVER, and that the server is as new as "
                "this library"
            ) from error

    def _refusal(self, answer: httpx.Response) -> Exception:
        try:
            problem = msgspec.json.decode(answer.content, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ServerUnreachable(
                f"{self._address} answers with status {answer.status_code}, and not like a "
                "gpupack-api; check GPUPACK_SERVER"
            )
        said = problem.detail or problem.title or f"status {answer.status_code}"
        if problem.field and not said.startswith(problem.field):
            value = f": {problem.value!r}" if problem.value else ""
            said = f"{problem.field}{value}: {said}"
        if problem.fix and problem.fix not in said:
            said += f"; {problem.fix}"
        if answer.status_code == UNAUTHORIZED:
            said += "; set GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints"
        return CallRefused(
            said,
            status=answer.status_code,
            field=problem.field,
            value=problem.value,
            fix=problem.fix,
        )

    def _unreachable(self, error: httpx.HTTPError) -> ServerUnreachable:
        fix = "check that it runs, and that GPUPACK_SERVER is its address"
        if is_untrusted(error):
            fix = "name a file with the ca.crt of secret gpupack-api-certificate in GPUPACK_CA"
        elif self._endpoint.token is None and isinstance(error, _CONNECTION_CLOSED):
            fix = (
                "check your client certificate: it must be of this cluster and must not have "
                "expired"
            )
        said = str(error) or type(error).__name__
        return ServerUnreachable(f"{self._address} does not answer: {said}; {fix}")


_CONNECTION_CLOSED: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""Errors where a server rejects a client certificate: it does not send a reason."""


def _pause(state: tenacity.RetryCallState) -> float:
    """Return the pause that the server requests, or else a random exponential one."""
    error = state.outcome.exception() if state.outcome else None
    requested = error.pause_seconds if isinstance(error, _RetryLater) else 0.0
    return requested or _BACKOFF(state)


_BACKOFF: Final = tenacity.wait_random_exponential(multiplier=0.2, max=MAX_PAUSE_SECONDS)
