# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs that hold an address, a CA and a certificate or a token, and nothing else.

Reading them takes 0.3 s less than importing the official client does, which is most of what a
command line takes (docs/adr/0046). Whatever else stands in one (commands, providers, proxies,
impersonation, several files) is the official client's to read: the answer is None then, and never
half an understanding.
"""

import base64
import binascii
import contextlib
import dataclasses
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 1 << 20

_CONTEXT: Final = frozenset({"cluster", "user", "namespace", "extensions"})
_CLUSTER: Final = frozenset(
    {"server", "certificate-authority", "certificate-authority-data", "extensions"}
)
_USER: Final = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "extensions",
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlainKubeconfig:
    """A way to an API server.

    Attributes:
        server: its address, which begins with https.
        namespace: of the context.
        authority: PEM of its CA.
        token: empty: there is none.
        certificate: PEM of the client; empty: there is none.
        key: PEM of its private key.
    """

    server: str
    namespace: str
    authority: bytes
    token: str = dataclasses.field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = dataclasses.field(default=b"", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection presents.

    Attributes:
        context: checks the server, and presents the client's certificate.
        certificate: path of that, for as long as the connection is there; empty: there is none.
        key: path of its key.
    """

    context: ssl.SSLContext
    certificate: str = ""
    key: str = ""


def plain(files: str, context: str | None) -> PlainKubeconfig | None:
    """Read a kubeconfig; None: it is none of these, or cannot be read."""
    import yaml  # noqa: PLC0415 - no part in a cluster reads any

    path = Path(files).expanduser()
    try:
        if os.pathsep in files or path.stat().st_size > MOST_BYTES:
            return None
        document = yaml.safe_load(path.read_bytes())
        return _of(document, path.parent, context)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return None


@contextlib.contextmanager
def credentials(config: PlainKubeconfig) -> Iterator[Credentials]:
    """What a connection presents; certificates lie in files of the owner's alone meanwhile.

    Raises:
        OSError: a certificate, a key or the CA is none.
    """
    context = ssl.create_default_context(cadata=config.authority.decode("ascii", errors="replace"))
    if not config.certificate:
        yield Credentials(context)
        return
    with tempfile.TemporaryDirectory(prefix="gpupack-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for path, content in ((certificate, config.certificate), (key, config.key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        # Without it a key that is encrypted would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
        yield Credentials(context, str(certificate), str(key))


def _of(document: Mapping[str, Any], folder: Path, wanted: str | None) -> PlainKubeconfig | None:
    chosen = _named(document["contexts"], wanted or document["current-context"])["context"]
    cluster = _named(document["clusters"], chosen["cluster"])["cluster"]
    user = _named(document["users"], chosen["user"])["user"]
    if chosen.keys() - _CONTEXT or cluster.keys() - _CLUSTER or user.keys() - _USER:
        return None
    found = PlainKubeconfig(
        server=cluster["server"].rstrip("/"),
        namespace=chosen.get("namespace") or "default",
        authority=_content(cluster, "certificate-authority", folder),
        token=user.get("token") or "",
        certificate=_content(user, "client-certificate", folder),
        key=_content(user, "client-key", folder),
    )
    usable = found.server.startswith("https://") and found.authority
    return found if usable and bool(found.certificate) == bool(found.key) else None


def _named(items: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """The first of that name, as kubectl has it; raises ValueError."""
    for each in items:
        if each["name"] == name:
            return each
    raise ValueError(name)


def _content(fields: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """Of the data beside it, or of the file, which is sought from the kubeconfig's folder on."""
    if data := fields.get(f"{name}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(name) from error
    path = fields.get(name)
    return (folder / path).read_bytes() if path else b""
