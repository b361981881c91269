# SPDX-License-Identifier: Apache-2.0
"""Settings of a component that exposes its metrics on a separate port."""

import dataclasses

from gpupack_kubeclient.environment import Environment

MAX_PORT = 65535


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Port and certificate of /metrics."""

    port: int = 0
    """GPUPACK_METRICS_PORT, HTTPS on all addresses; 0: no port is opened."""
    tls_cert: str = ""
    """GPUPACK_METRICS_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_METRICS_TLS_KEY: path of the certificate's key (PEM)."""

    @classmethod
    def of(cls, environment: Environment) -> "MetricsSettings":
        """Read the settings; raises SettingsInvalid."""
        port = environment.whole("GPUPACK_METRICS_PORT", 0, least=0, most=MAX_PORT)
        if not port:
            return cls()
        return cls(
            port=port,
            tls_cert=environment.required(
                "GPUPACK_METRICS_TLS_CERT", "the path of the certificate of the metrics' port"
            ),
            tls_key=environment.required(
                "GPUPACK_METRICS_TLS_KEY", "the path of that certificate's key"
            ),
        )
