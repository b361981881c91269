# SPDX-License-Identifier: Apache-2.0
"""The certificate of a server, which may be renewed while the server runs.

    a handshake, a scrape ──► last look LOOK_SECONDS ago? ──► read both files ──► other bytes?
                                                                                     │
         a new TLS context for the handshakes that follow ◄── a pair, valid now ────┤
         the last pair is served on; log and metric say so ◄── anything else ───────┘

Open connections keep their context, so that a renewal drops none. A context is never changed:
OpenSSL loads the chain before the key, and a context whose key does not match cannot serve any
client. No background task runs: a server without connections needs no certificate, and an idle
agent stays idle.

The kubelet swaps all files of a Secret at once, but a chain and a key that are read one after the
other may still be of two Secrets. Then they do not match, and the next look finds both. The content
that was read is loaded and kept: another context may be needed while the files hold no pair.
"""

import contextlib
import dataclasses
import datetime as dt
import logging
import os
import pathlib
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Seconds between two checks of the files."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFiles:
    """Paths of a server's certificate.

    Attributes:
        chain: path of the certificate chain (PEM), whose first certificate is the server's own.
        key: path of its key (PEM).
    """

    chain: str
    key: str


class _Pair(NamedTuple):
    """Contents of both files."""

    chain: bytes
    key: bytes


def tls_context() -> ssl.SSLContext:
    """Return a server's context without a certificate."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


class ServedCertificate:
    """The last usable certificate of two files.

    Args:
        files: paths of the certificate.
        bare: makes a context without a certificate.
        now: the time by which a certificate is valid.
        clock: returns monotonic seconds.

    Raises:
        OSError: a file cannot be read, or the key does not match the certificate.
        ValueError: a file is not a certificate.
    """

    def __init__(
        self,
        files: ServerFiles,
        *,
        bare: Callable[[], ssl.SSLContext] = tls_context,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._bare, self._now, self._clock = files, bare, now, clock
        self._served = self._read()
        # Served whatever its dates are: without any certificate callers would learn even less.
        self._context, self.good_until = self._load(self._served), _dates(self._served)[1]
        self._looked_at = clock()
        self.rejected = ""
        """Why the files cannot be served now; empty: they are being served."""

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        if self._clock() - self._looked_at >= LOOK_SECONDS:
            self.look()
        return self._context

    def replace_context(self) -> None:
        """Serve with another context, which `bare` makes now, whatever the files hold.

        Raises:
            OSError: there is no memory for it.
        """
        self._context = self._load(self._served)
        self.look()

    def look(self) -> None:
        """Serve the current content of the files, if it can be served."""
        self._looked_at = self._clock()
        try:
            found = self._read()
            if found != self._served:
                self._require_valid(found)
                self._context, self.good_until = self._load(found), _dates(found)[1]
        except (OSError, ValueError) as error:
            self._reject(str(error))
            return
        if found != self._served:
            log.info(
                "%s: the certificate was renewed: good until %s",
                self._files.chain,
                self.good_until,
            )
        self._served = found
        self._accept()

    def _require_valid(self, pair: _Pair) -> None:
        begins, ends = _dates(pair)
        if not begins <= self._now() <= ends:
            raise ValueError(f"it is good from {begins:%FT%TZ} to {ends:%FT%TZ}")

    def _read(self) -> _Pair:
        return _Pair(
            *(pathlib.Path(each).read_bytes() for each in dataclasses.astuple(self._files))
        )

    def _load(self, pair: _Pair) -> ssl.SSLContext:
        """Load a pair into a new context; raises OSError or ValueError."""
        context = self._bare()
        with _in_memory(pair.chain) as chain, _in_memory(pair.key) as key:
            # Without a password OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(chain, key, password=lambda: b"")
        return context

    def _accept(self) -> None:
        if self.rejected:
            log.info("%s: the certificate can be served again", self._files.chain)
        self.rejected = ""

    def _reject(self, reason: str) -> None:
        if reason != self.rejected:
            log.error(
                "%s: the certificate cannot be served, the last one (good until %s) still is: %s",
                self._files.chain,
                self.good_until,
                reason,
            )
        self.rejected = reason


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory: Python's ssl reads only files, and there is no /tmp."""
    descriptor = os.memfd_create("gpupack-certificate")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _dates(pair: _Pair) -> tuple[dt.datetime, dt.datetime]:
    """Return the start and end of the certificate's validity; raises ValueError."""
    certificate = x509.load_pem_x509_certificate(pair.chain)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


class CertificateMetrics(Collector):
    """A collector of metrics about a server's certificate."""

    def __init__(self, certificate: ServedCertificate) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[Metric]:
        """Check the files first, so that a server without callers reports what it would serve."""
        self._certificate.context()
        yield GaugeMetricFamily(
            "gpupack_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate that this component serves, in seconds since the epoch.",
            value=self._certificate.good_until.timestamp(),
        )
        yield GaugeMetricFamily(
            "gpupack_certificate_rejected",
            "1 while the certificate's files cannot be loaded and the previous certificate is "
            "served.",
            value=float(bool(self._certificate.rejected)),
        )
