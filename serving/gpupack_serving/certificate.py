# SPDX-License-Identifier: Apache-2.0
"""Until when a server's certificate is good, as a metric."""

import pathlib
from collections.abc import Iterator

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class CertificateExpiry(Collector):
    """Of the certificate that a server began with: one that replaces it counts after a restart.

    Args:
        path: its chain (PEM), of which the first is the server's own.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no certificate.
    """

    def __init__(self, path: str) -> None:
        certificate = x509.load_pem_x509_certificate(pathlib.Path(path).read_bytes())
        self._until = certificate.not_valid_after_utc.timestamp()

    def collect(self) -> Iterator[Metric]:
        """Seconds since the epoch."""
        yield GaugeMetricFamily(
            "gpupack_certificate_expiry_timestamp_seconds",
            "Until when the certificate is good by which this part is known.",
            value=self._until,
        )
