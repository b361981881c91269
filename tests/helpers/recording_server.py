# SPDX-License-Identifier: Apache-2.0
"""An API server that writes down what it is asked, and a proxy that writes down what it is asked
for. Both answer every process on loopback: kubectl, and ours."""

import contextlib
import json
import re
import socket
import socketserver
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHOWN = ("authorization", "accept-encoding")


class Recording(ThreadingHTTPServer):
    """Answers every request with `answer(request)`, a status; `requests` has what came."""

    daemon_threads = True

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = []
        self.answer = lambda request: 200
        if context is not None:
            context.sni_callback = _remember_name
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def port(self):
        return self.server_address[1]

    def handle_error(self, request, client_address):
        """A client that does not trust us hangs up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def _answer(self):
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        request = {
            "method": self.command,
            "path": re.sub("^http://[^/]+", "", self.path),
            "sni": getattr(self.connection, "named", None) or "",
            "certificate": _common_name(self.connection),
            "impersonate": sorted(
                f"{name.title()}: {_text(value)}"
                for name, value in self.headers.items()
                if name.lower().startswith("impersonate-")
            ),
        } | {name: self.headers.get(name, "") for name in SHOWN}
        self.server.requests.append(request)
        status = self.server.answer(request)
        body = json.dumps(
            {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
            if self.command == "GET"
            else {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
            | {"status": {"token": "made", "expirationTimestamp": "2030-01-01T00:00:00Z"}}
            if status == 200
            else {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

    def log_message(self, *_):
        pass


def _text(value):
    """Headers are bytes, which http.server takes for latin-1."""
    return value.encode("latin-1").decode()


def _remember_name(connection, name, _context):
    connection.named = name


def _common_name(connection):
    found = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    subject = [pair for part in (found or {}).get("subject", ()) for pair in part]
    return dict(subject).get("commonName", "")


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy for CONNECT, plain requests and SOCKS 5, which leads everywhere to one server."""

    daemon_threads = True

    def __init__(self, target_port, plain_port):
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.ports = {"tls": target_port, "plain": plain_port}
        self.asked = []

    @property
    def port(self):
        return self.server_address[1]

    def handle_error(self, request, client_address):
        """Write nothing: see above."""


class _ProxyHandler(socketserver.StreamRequestHandler):
    def handle(self):
        first = self.request.recv(1, socket.MSG_PEEK)
        if first == b"\x05":
            self._socks()
        else:
            self._http()

    def _http(self):
        line = self.rfile.readline().decode()
        headers, raw = [], b""
        while (each := self.rfile.readline()) not in {b"\r\n", b""}:
            headers.append(each.decode().strip())
            raw += each
        sent = [each for each in headers if each.lower().startswith("proxy-authorization")]
        method, target, version = line.split()
        asked = f"CONNECT {target}" if method == "CONNECT" else f"plain {target.split('/')[2]}"
        self.server.asked.append(" ".join([asked, *sent]))
        if method == "CONNECT":
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay(self.server.ports["tls"], b"")
        else:
            path = "/" + target.split("/", 3)[3]
            self._relay(
                self.server.ports["plain"],
                f"{method} {path} {version}\r\n".encode() + raw + b"\r\n",
            )

    def _socks(self):
        methods = self.request.recv(2)[1]
        self.request.recv(methods)
        self.request.sendall(b"\x05\x00")
        self.request.recv(512)
        self.server.asked.append("SOCKS")
        self.request.sendall(b"\x05\x00\x00\x01" + b"\x00" * 6)
        self._relay(self.server.ports["tls"], b"")

    def _relay(self, port, begin):
        with socket.create_connection(("127.0.0.1", port)) as there:
            there.sendall(begin)
            back = threading.Thread(target=_pump, args=(there, self.request), daemon=True)
            back.start()
            while data := self.rfile.read1(1 << 16):
                there.sendall(data)


def _pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(server):
    """Serve in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
