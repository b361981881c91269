# SPDX-License-Identifier: Apache-2.0
"""One connection: uvicorn's protocol, with limits that apply before gpupack's code runs.

uvicorn on httptools waits without end for a head or a body, keeps as many headers as are sent, and
answers in plain text. Here every refusal is a Problem, and:

    first byte         5 s where pods can connect; then the connection is closed
    head               64 KiB and 100 headers, no trailers, no upgrade
    whole call         10 s from its first byte to its last; then 408
    answer             10 s in which nothing of it is read; then the connection is dropped

A call's scope holds the certificate that its caller presented in the handshake.

A refused caller has a second to read the reason before the connection is closed. If it were closed
at once with bytes unread, TCP might discard the answer.
"""

import asyncio
import http
import math
import ssl
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gpupack_crds.plan import Problem
from gpupack_httpserver.client_certificates import PeerCertificate
from gpupack_httpserver.peer_limits import Slot

HEAD_BYTES: Final = 64 << 10
HEADERS: Final = 100
CALL_SECONDS: Final = 10.0
"""Time limit of a call: kube-scheduler gives up after 5 s, the operator after 10."""
LINGER_SECONDS: Final = 1.0
UNREAD_SECONDS: Final = 10.0
"""Time limit for reading: an unread answer takes memory and keeps its connection busy."""
FIRST_BYTE_SECONDS: Final = 5.0

PEER_CERTIFICATE: Final = "gpupack.dev/peer-certificate"
"""The extension of a call's scope with a PeerCertificate.

ASGI's own (`tls`) has only the chain, which does not say when it was verified.
"""

_UNREADABLE: Final = (http.HTTPStatus.BAD_REQUEST, "the request is no HTTP/1.1 that can be read")


class _HeadRefused(Exception):
    """A signal that ends the parsing; the connection holds the answer."""


class Connection(HttpToolsProtocol):
    """A connection that limits what its caller sends."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        slot: Slot | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._slot = slot
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._unused_bytes = 0
        self._head_bytes = 0
        self._in_body = False
        self._certificate: PeerCertificate | None = None
        self._refusal = _UNREADABLE
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first call."""
        super().connection_made(transport)
        self._certificate = _shown(transport)
        seconds = min(FIRST_BYTE_SECONDS, self.timeout_keep_alive) if self._slot else None
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds or self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers and free the slot."""
        self._disarm()
        self._is_read()
        if self._slot:
            self._slot.free()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the caller to read, for a limited time."""
        super().pause_writing()
        self._is_read()
        self._await_reader()

    def resume_writing(self) -> None:
        """Stop the timer: the caller reads."""
        self._is_read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse the data; count bytes that are not yet part of a head or body."""
        if self._is_refused:
            return
        self._arm()
        self._unused_bytes += len(data)
        super().data_received(data)
        if self._unused_bytes > HEAD_BYTES and not self._is_refused:
            self._refuse(*_head_too_large())

    def on_message_begin(self) -> None:
        """Start to wait for the rest of the call."""
        self._arm()
        self._in_body, self._head_bytes = False, 0
        super().on_message_begin()
        if self._certificate is not None:
            self.scope["extensions"] = {PEER_CERTIFICATE: {"shown": self._certificate}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Accept one header of the head."""
        self._head_bytes += len(name) + len(value)
        if self._in_body:
            self._stop(http.HTTPStatus.BAD_REQUEST, "headers after the body are not read here")
        if len(self.headers) >= HEADERS or self._head_bytes > HEAD_BYTES:
            self._stop(*_head_too_large())
        if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
            self._stop(http.HTTPStatus.BAD_REQUEST, "no transfer coding but chunked is read here")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the call."""
        if self.parser.should_upgrade():
            self._stop(http.HTTPStatus.BAD_REQUEST, "only HTTP/1.1 is spoken here, no upgrade")
        self._in_body, self._unused_bytes = True, 0
        if self._slot:
            self._slot.busy()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next call."""
        if self._slot and not self.pipeline:
            self._slot.rest()
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        """Accept a part of the body; discard what an answered call still sends."""
        self._unused_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer until the next call begins."""
        self._unused_bytes = 0
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser or a limit found wrong."""
        del msg
        self._refuse(*self._refusal)

    def _stop(self, status: http.HTTPStatus, message: str) -> None:
        """Make the parser end with `send_400_response`.

        Raises:
            _HeadRefused: always.
        """
        self._refusal = status, message
        raise _HeadRefused(message)

    def _refuse(self, status: http.HTTPStatus, message: str) -> None:
        self._is_refused = True
        self._disarm()
        if self._abandon_call():
            self.transport.close()
            return
        self.transport.write(_answer(status, message))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _abandon_call(self) -> bool:
        """Let the current call write nothing more; return whether half an answer is sent."""
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return self.cycle.response_started

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(CALL_SECONDS, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_reader(self, before: float = math.inf) -> None:
        """Drop the connection unless fewer bytes are left than before; check again later."""
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
            return
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._await_reader, left)

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _too_slow(self) -> None:
        if self._in_body and self.cycle.response_complete:
            self.transport.close()
            return
        message = f"the call did not come within {CALL_SECONDS:g} s"
        self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, message)


def _shown(transport: asyncio.Transport) -> PeerCertificate | None:
    """Return the certificate that the caller presented and TLS verified; none without a request."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None or tls.context.verify_mode is ssl.CERT_NONE:
        return None
    der = tls.getpeercert(binary_form=True)
    return PeerCertificate(der, tls.context) if der else None


def certificate_of(scope: Mapping[str, Any]) -> PeerCertificate | None:
    """Return the certificate that the caller presented when this call's connection was opened."""
    found = (scope.get("extensions") or {}).get(PEER_CERTIFICATE) or {}
    shown = found.get("shown")
    return shown if isinstance(shown, PeerCertificate) else None


def _head_too_large() -> tuple[http.HTTPStatus, str]:
    status = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return status, f"a call's head has at most {HEAD_BYTES} bytes and {HEADERS} headers"


def _answer(status: http.HTTPStatus, message: str) -> bytes:
    body = msgspec.json.encode(Problem(reason=reason(status), message=message))
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def reason(status: http.HTTPStatus) -> str:
    """Return a status as a Problem's reason, such as `NotFound`."""
    return status.phrase.title().replace(" ", "")
