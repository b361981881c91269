# SPDX-License-Identifier: Apache-2.0
"""Settings, read from the environment once at start."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from gpupack_crds import names
from gpupack_httpserver.certificate import ServerFiles
from gpupack_kubeclient.environment import Environment
from gpupack_scheduler.decisions import MAX_SECONDS, Decisions

LEAST_FRESH: Final = 75.0
"""Smallest value of stale_after_seconds. A watch without a peer is requested again after 60 s: with
less, an interrupted watch would stop decisions before it can recover.
"""

MAX_PORT: Final = 65535


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Ports and certificates of the servers."""

    verbs_port: int = 8888
    """GPUPACK_VERBS_PORT, on 127.0.0.1 only: kube-scheduler is in the same pod."""
    plan_port: int = 8443
    """GPUPACK_PLAN_PORT, HTTPS on all addresses: plan API, metrics, the known state."""
    health_port: int = 8081
    """GPUPACK_HEALTH_PORT, HTTP on all addresses: health and readiness for the kubelet."""
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""

    @property
    def files(self) -> ServerFiles:
        """Both paths."""
        return ServerFiles(self.tls_cert, self.tls_key)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Settings of leader election and freshness."""

    system_namespace: str = names.SYSTEM_NAMESPACE
    """GPUPACK_SYSTEM_NAMESPACE: namespace of the leader's Lease."""
    leader_lease: str = names.SCHEDULER_LEASE
    """GPUPACK_LEADER_LEASE: the Lease of kube-scheduler's own leader election."""
    pod_name: str = ""
    """POD_NAME: kube-scheduler's identity in that Lease begins with it."""
    pod_uid: str = ""
    """POD_UID: UID of the pod that owns what the leader publishes."""
    pod_address: str = ""
    """POD_IP: address for the plan API's Service while this process decides; empty: not written."""
    stale_after_seconds: float = 90.0
    """GPUPACK_STALE_AFTER_SECONDS: nothing is decided if a watch is silent for longer; at least
    LEAST_FRESH.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the extender."""

    decisions: Decisions
    serving: Serving
    leader_election: LeaderElection
    withheld_config_map: str = ""
    """GPUPACK_WITHHELD_CONFIG_MAP: ConfigMap with the resources that no node offers; empty: they
    are not published.
    """
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL: level of Python's logging."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and the valid values.
        """
        environment = Environment(environ)
        return cls(
            decisions=Decisions.of(environment),
            serving=_serving(environment),
            leader_election=_leader_election(environment),
            withheld_config_map=environment.text("GPUPACK_WITHHELD_CONFIG_MAP", ""),
            log_level=environment.log_level(),
        )


def _serving(environment: Environment) -> Serving:
    return Serving(
        verbs_port=environment.whole("GPUPACK_VERBS_PORT", 8888, most=MAX_PORT),
        plan_port=environment.whole("GPUPACK_PLAN_PORT", 8443, most=MAX_PORT),
        health_port=environment.whole("GPUPACK_HEALTH_PORT", 8081, most=MAX_PORT),
        tls_cert=environment.required("GPUPACK_TLS_CERT", "the path of the certificate"),
        tls_key=environment.required("GPUPACK_TLS_KEY", "the path of the certificate's key"),
    )


def _leader_election(environment: Environment) -> LeaderElection:
    return LeaderElection(
        system_namespace=environment.text("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
        leader_lease=environment.text("GPUPACK_LEADER_LEASE", names.SCHEDULER_LEASE),
        pod_name=environment.required("POD_NAME", "this pod's name (downward API)"),
        pod_uid=environment.text("POD_UID", ""),
        pod_address=environment.text("POD_IP", ""),
        stale_after_seconds=environment.seconds(
            "GPUPACK_STALE_AFTER_SECONDS", 90.0, least=LEAST_FRESH, most=MAX_SECONDS
        ),
    )
