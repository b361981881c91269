# SPDX-License-Identifier: Apache-2.0
"""Settings, read from the environment once at start."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Final

from gpupack_crds import names
from gpupack_httpserver.certificate import ServerFiles
from gpupack_kubeclient.environment import PULL_POLICIES, Environment
from gpupack_scheduler.decisions import MAX_SECONDS, Decisions

MIN_FRESH_SECONDS: Final = 75.0
"""Minimum seconds: a watch whose peer is gone is opened again after 60."""

MIN_READING_SECONDS: Final = 1.0
"""Minimum seconds between two rounds over the agents."""

MAX_PORT: Final = 65535


@dataclasses.dataclass(frozen=True, slots=True)
class Placeholder:
    """The image of pods that only hold GPUs.

    Attributes:
        image: an image of gpupack.
        pull_policy: when nodes pull it.
        pull_secrets: names of Secrets with the registry's credentials, in the pods' namespace.
    """

    image: str = ""
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Environment) -> "Placeholder":
        """Read the settings; raises SettingsInvalid."""
        return cls(
            image=environment.text("GPUPACK_PLACEHOLDER_IMAGE", ""),
            pull_policy=environment.choice(
                "GPUPACK_IMAGE_PULL_POLICY", PULL_POLICIES, PULL_POLICIES[0]
            ),
            pull_secrets=environment.words("GPUPACK_IMAGE_PULL_SECRETS"),
        )


NO_PLACEHOLDER: Final = Placeholder()


@dataclasses.dataclass(frozen=True, slots=True)
class CostService:
    """The address of the cost service.

    Attributes:
        url: URL of its server, such as https://gpupack-cost.gpupack-system.svc.
        ca: path of the CA of its certificate (PEM); empty: the host's own CAs are trusted.
    """

    url: str
    ca: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """The settings with which the agents' readings of their GPUs are fetched.

    Attributes:
        ca: path of the CA of their certificate (PEM).
        token: path of a token that may get /metrics.
        host: the name in their certificate.
        port: port on which they listen.
        seconds: interval of rounds.
        namespace: namespace of the agents' pods.
    """

    ca: str
    token: pathlib.Path
    host: str
    port: int
    seconds: float
    namespace: str = names.SYSTEM_NAMESPACE

    @classmethod
    def of(cls, environment: Environment) -> "ReadingSettings | None":
        """Read the settings; None: agents are not read.

        Raises:
            SettingsInvalid: the message names the variable, its value and the allowed values.
        """
        port = environment.whole("GPUPACK_READINGS_PORT", 0, least=0, most=MAX_PORT)
        if not port:
            return None
        token = environment.required("GPUPACK_READINGS_TOKEN", "the path of a token for /metrics")
        return cls(
            ca=environment.required("GPUPACK_READINGS_CA", "the path of the agents' ca.crt"),
            token=pathlib.Path(token),
            host=environment.required("GPUPACK_READINGS_HOST", "the name in their certificate"),
            port=port,
            seconds=environment.seconds(
                "GPUPACK_READINGS_SECONDS", 30.0, least=MIN_READING_SECONDS, most=MAX_SECONDS
            ),
            namespace=environment.text("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the API."""

    decisions: Decisions
    """The extender's settings, which read the same state."""
    port: int = 8444
    """GPUPACK_LISTEN_PORT, HTTPS on all addresses.

    The name GPUPACK_API_PORT is taken: Kubernetes sets it for the Service gpupack-api.
    """
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""
    certificates_port: int = 0
    """GPUPACK_CLIENT_CERTIFICATES_PORT: a further HTTPS port for callers with certificates.

    They are of the cluster's client CA. 0: there is no such port.
    """
    stale_after_seconds: float = 90.0
    """GPUPACK_STALE_AFTER_SECONDS: after longer silence of a watch nothing is answered."""
    config: pathlib.Path | None = None
    """GPUPACK_CONFIG: path of the file with settings that may change at run time (config.py)."""
    placeholder: Placeholder = NO_PLACEHOLDER
    """GPUPACK_PLACEHOLDER_IMAGE: an image with python3 for pods that only hold GPUs.

    GPUPACK_IMAGE_PULL_POLICY and GPUPACK_IMAGE_PULL_SECRETS: how it is pulled.
    """
    cost_service: CostService | None = None
    """GPUPACK_COST_URL: URL of the cost service.

    GPUPACK_COST_CA: path of the CA of its certificate (PEM). Not set: there is no cost service.
    """
    readings: ReadingSettings | None = None
    """GPUPACK_READINGS_PORT: port of the agents' metrics; 0: they are not read.

    GPUPACK_READINGS_CA, GPUPACK_READINGS_TOKEN: paths; GPUPACK_READINGS_HOST: the name in their
    certificate; GPUPACK_READINGS_SECONDS: interval of rounds; GPUPACK_SYSTEM_NAMESPACE: namespace
    of their pods.
    """
    page_folder: str = ""
    """GPUPACK_PAGE_FOLDER: folder of the built dashboard; empty: it is not served."""
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL."""

    @property
    def files(self) -> ServerFiles:
        """Paths of the certificate chain and its key."""
        return ServerFiles(self.tls_cert, self.tls_key)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and the allowed values.
        """
        environment = Environment(environ)
        config = environment.text("GPUPACK_CONFIG", "")
        url = environment.text("GPUPACK_COST_URL", "").rstrip("/")
        return cls(
            decisions=Decisions.of(environment),
            port=environment.whole("GPUPACK_LISTEN_PORT", 8444, most=MAX_PORT),
            tls_cert=environment.required("GPUPACK_TLS_CERT", "the path of the certificate"),
            tls_key=environment.required("GPUPACK_TLS_KEY", "the path of the certificate's key"),
            certificates_port=environment.whole(
                "GPUPACK_CLIENT_CERTIFICATES_PORT", 0, least=0, most=MAX_PORT
            ),
            stale_after_seconds=environment.seconds(
                "GPUPACK_STALE_AFTER_SECONDS", 90.0, least=MIN_FRESH_SECONDS, most=MAX_SECONDS
            ),
            config=pathlib.Path(config) if config else None,
            placeholder=Placeholder.of(environment),
            cost_service=CostService(url, environment.text("GPUPACK_COST_CA", "")) if url else None,
            readings=ReadingSettings.of(environment),
            page_folder=environment.text("GPUPACK_PAGE_FOLDER", ""),
            log_level=environment.log_level(),
        )
