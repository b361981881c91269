# SPDX-License-Identifier: Apache-2.0
"""Calls of the REST API with typed answers."""

from typing import Any, Final, TypeVar

import httpx
import msgspec
import tenacity

from gpupack_cli import errors
from gpupack_cli.notes import note_pause
from gpupack_kubeclient import patience
from gpupack_kubeclient.ca_file import is_untrusted
from gpupack_restapi.problem import Problem

T = TypeVar("T")

MAX_BYTES: Final = 256 << 20
"""Maximum size of an answer: a snapshot of 5,000 nodes and 20,000 pods has some tens of MiB."""


RETRYABLE: Final = frozenset({429, 503})


class _RetryLater(Exception):
    """The server requests a retry after `seconds`; it has done nothing."""

    def __init__(self, refusal: errors.CliError, seconds: float) -> None:
        super().__init__(str(refusal))
        self.refusal, self.seconds = refusal, seconds


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    requested_seconds = error.seconds if isinstance(error, _RetryLater) else None
    seconds = patience.pause(state, asked_seconds=requested_seconds)
    note_pause(seconds, error)
    return seconds


class Rest:
    """The REST API.

    Args:
        client: has the address and the credentials.
        uses_certificate: a client certificate identifies the caller.
        is_named: the user has named the address.
    """

    def __init__(
        self, client: httpx.AsyncClient, *, uses_certificate: bool = False, is_named: bool = False
    ) -> None:
        self._client, self.uses_certificate = client, uses_certificate
        self._address_hint = ADDRESS_HINT if is_named else ""

    async def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Send GET and return the decoded answer; raises CliError."""
        params = {name: value for name, value in query.items() if value not in ("", None)}
        return self._decode((await self._send("GET", path, params=params))[0], kind, path)

    async def get_bytes(self, path: str) -> bytes:
        """Send GET and return the body unchanged; raises CliError."""
        return (await self._send("GET", path))[0]

    async def get_linked(self, path: str, **query: str) -> tuple[bytes, dict[str, str]]:
        """Send GET and return the body unchanged, with the query of its next page.

        The query is empty where the answer has no Link to a next page. Raises CliError.
        """
        body, answer = await self._send("GET", path, params=query)
        following = answer.links.get("next", {}).get("url", "")
        return body, dict(httpx.URL(following).params) if following else {}

    async def post(self, path: str, body: Any, kind: type[T]) -> T:
        """Send a document; raises CliError."""
        return self._decode((await self._send("POST", path, json=body))[0], kind, path)

    async def _send(self, method: str, path: str, **given: Any) -> tuple[bytes, httpx.Response]:
        """Send until there is an answer, as long as the server requests it; raises CliError."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_RetryLater),
            wait=_pause,
            stop=lambda state: patience.is_enough(state, is_asked=True),
            reraise=True,
        )
        try:
            return await trying(self._once, method, path, **given)
        except _RetryLater as error:
            raise error.refusal from error

    async def _once(self, method: str, path: str, **given: Any) -> tuple[bytes, httpx.Response]:
        try:
            async with self._client.stream(method, path, **given) as response:
                parts, size = list[bytes](), 0
                async for part in response.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BYTES:
                        raise errors.RestUnavailable(
                            f"the answer to {path} is larger than {size} B"
                        )
        except httpx.HTTPError as error:
            raise errors.RestUnavailable(
                f"the REST API at {self._client.base_url.copy_with(path='/')} does not answer: "
                f"{str(error) or type(error).__name__}{self._fix(error)}"
            ) from error
        if response.status_code >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            body = b"".join(parts)
            refusal = refusal_error(response.status_code, body, path, hint=self._address_hint)
            header = response.headers.get("Retry-After", "")
            if response.status_code in RETRYABLE and header.isdecimal():
                raise _RetryLater(refusal, float(header))
            raise refusal
        return b"".join(parts), response

    def _fix(self, error: httpx.HTTPError) -> str:
        """Return what to do; a server hangs up silently on a bad client certificate."""
        if self.uses_certificate and isinstance(error, _CONNECTION_CLOSED):
            return (
                "; check your client certificate: it must be of this cluster and must not have "
                "expired; GPUPACK_TOKEN has precedence over it"
            )
        return _certificate_hint(error) or self._address_hint

    def _decode(self, data: bytes, kind: type[T], path: str) -> T:
        return decode_answer(data, kind, path, hint=self._address_hint)


ADDRESS_HINT: Final = "; check that --server or GPUPACK_SERVER is the address of gpupack-api"
_CONNECTION_CLOSED: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


def _certificate_hint(error: BaseException) -> str:
    """Return what to do where the certificate is the cause."""
    if not is_untrusted(error):
        return ""
    return (
        "; give a file with the ca.crt of Secret gpupack-api-certificate, or your own CA, by "
        "--ca or GPUPACK_CA"
    )


def decode_answer(data: bytes, kind: type[T], path: str, *, hint: str = "") -> T:
    """Decode an answer; `hint` is added to the error.

    Raises:
        RestUnavailable: it is not of this API, or of another version.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise errors.RestUnavailable(
            f"the answer to {path} cannot be read: {error}; use the same version of gpupack-api "
            f"and of this command{hint}"
        ) from error


def refusal_error(status: int, body: bytes, path: str, *, hint: str = "") -> errors.CliError:
    """Return a refusal in the form for users; `hint` is added where no gpupack-api may answer."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, RecursionError):
        problem = Problem(title="", status=status, detail="")
    detail = problem.detail or problem.title or f"status {status}"
    if problem.fix and problem.fix not in detail:
        detail = f"{detail}; {problem.fix}"
    match status:
        case 400 | 413 | 422:
            return errors.InputInvalid(detail)
        case 401:
            why = "needs a token here" if problem.field else "does not accept your credentials"
            return errors.Unauthenticated(
                f"the REST API {why} ({problem.detail}); use a kubeconfig with a token, or set "
                "GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints"
            )
        case 403:
            return errors.PermissionDenied(detail)
        case 404 if problem.field != "path" and problem.detail not in {"", "Not Found"}:
            return errors.ObjectNotFound(detail)
        case 404 | 405:
            return errors.RestUnavailable(
                f"this gpupack-api has no call {path}; upgrade it, or use an older gpupack{hint}"
            )
        case _:
            return errors.RestUnavailable(f"the REST API cannot answer {path} now: {detail}")
