# SPDX-License-Identifier: Apache-2.0
"""A registry with one image, which it gives to callers that know its password alone.

python private_registry.py PORT USER PASSWORD    on loopback, where container runtimes speak HTTP

The image is a program that ends well at once, for Linux on x86-64.
"""

import base64
import hashlib
import http.server
import io
import json
import socket
import struct
import sys
import tarfile

REPOSITORY = "gpupack/workloads"
EXIT = b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05"
"""mov eax, 60 (exit); xor edi, edi; syscall."""
TLS_HANDSHAKE = b"\x16"
ADDRESS, HEADERS = 0x400000, 64 + 56
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def program():
    """An ELF file with one segment, which is loaded whole."""
    size = HEADERS + len(EXIT)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, ADDRESS + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, ADDRESS, ADDRESS, size, size, 0x1000)
    return ident + head + segment + EXIT


def layer():
    """The file system: the program, as /exit."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("exit")
        entry.mode, entry.size = 0o755, len(program())
        tar.addfile(entry, io.BytesIO(program()))
    return archive.getvalue()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def described(kind, content):
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}


def image():
    """All that can be asked for, by path, with its type."""
    files = layer()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/exit"], "User": "65532"},
        "rootfs": {"type": "layers", "diff_ids": [digest(files)]},
    }
    settings = json.dumps(config).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described(CONFIG, settings),
            "layers": [described(LAYER, files)],
        }
    ).encode()
    top = f"/v2/{REPOSITORY}"
    return {
        "/v2/": ("application/json", b"{}"),
        f"{top}/manifests/1": (MANIFEST, manifest),
        f"{top}/manifests/{digest(manifest)}": (MANIFEST, manifest),
        f"{top}/blobs/{digest(settings)}": (CONFIG, settings),
        f"{top}/blobs/{digest(files)}": (LAYER, files),
    }


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers one call."""

    protocol_version = "HTTP/1.1"
    known, content = "", image()

    def handle(self):
        """A runtime that tries TLS first has to see that this is HTTP."""
        if self.connection.recv(1, socket.MSG_PEEK) == TLS_HANDSHAKE:
            self.connection.recv(1 << 16)
            self.connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            return
        super().handle()

    def do_GET(self):
        if self.headers.get("Authorization") != self.known:
            self.answer(401, "text/plain", b"", [("WWW-Authenticate", 'Basic realm="private"')])
            return
        kind, body = self.content.get(self.path.partition("?")[0], ("text/plain", None))
        if body is None:
            self.answer(404, kind, b"")
            return
        self.answer(200, kind, body, [("Docker-Content-Digest", digest(body))])

    do_HEAD = do_GET  # noqa: N815 - the standard library's

    def answer(self, status, kind, body, more=()):
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def main():
    port, user, password = sys.argv[1:]
    Registry.known = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Registry).serve_forever()


if __name__ == "__main__":
    main()
