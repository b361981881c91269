# SPDX-License-Identifier: Apache-2.0
"""Settings, read from the environment once at start."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

import gpupack_core as core
from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_extender.queueing.settings import QueueSettings
from gpupack_kube.environment import Environment, SettingsInvalid

LEAST_FRESH: Final = 75.0
"""Seconds. A watch whose other end is gone is asked for anew after 60: with less, one that was cut
off would stop decisions before it can mend itself."""

MOST_SECONDS: Final = 3600.0
MOST_PORT: Final = 65535


class Mode(enum.StrEnum):
    """Who chooses the node of a pod that belongs to no plan."""

    DECISIVE = "decisive"
    """The extender: filter answers one node."""
    ADVISORY = "advisory"
    """kube-scheduler: filter passes every node that fits, prioritize ranks them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """How places are chosen and for how long an answer holds them."""

    mode: Mode = Mode.DECISIVE
    """GPUPACK_MODE."""
    policy: str = core.DEFAULT_POLICY
    """GPUPACK_POLICY: the placement policy where a job names none."""
    outlook: core.Outlook | None = None
    """GPUPACK_OUTLOOK, JSON as of gpupack_core.outlook_document: what is known of the requests to
    come. Absent: it is learned."""
    plan_hold_seconds: float = 10.0
    """GPUPACK_PLAN_HOLD_SECONDS: the operator writes a plan into the GPUJob by then or not at all.

    A new leader makes no plan for as long, so that it cannot contradict its predecessor's."""
    observed_resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES, separated by commas: resources of other device plugins, such as
    nvidia.com/gpu, whose nodes are packed without a say in devices."""
    acceptance: Acceptance | None = None
    """GPUPACK_ACCEPTANCE, JSON as the chart writes it: which GPUs are tried before their use."""
    assume_seconds: float = 30.0
    """GPUPACK_ASSUME_SECONDS: a place that filter gave is free again when no bind came by then."""
    queue: QueueSettings = dataclasses.field(default_factory=QueueSettings)
    """GPUPACK_QUEUE, JSON: how the queue is run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where the servers listen."""

    verbs_port: int = 8888
    """GPUPACK_VERBS_PORT, on 127.0.0.1 only: kube-scheduler is in the same pod."""
    plan_port: int = 8443
    """GPUPACK_PLAN_PORT, HTTPS on all addresses: plan API, metrics, what is known."""
    health_port: int = 8081
    """GPUPACK_HEALTH_PORT, HTTP on all addresses: health and readiness for the kubelet."""
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """When the extender may speak for the cluster."""

    system_namespace: str = names.SYSTEM_NAMESPACE
    """GPUPACK_SYSTEM_NAMESPACE: where the leader's Lease is."""
    leader_lease: str = names.SCHEDULER_LEASE
    """GPUPACK_LEADER_LEASE: the Lease of kube-scheduler's own leader election."""
    pod_name: str = ""
    """POD_NAME: kube-scheduler's identity in that Lease begins with it."""
    pod_uid: str = ""
    """POD_UID: owns what the leader publishes."""
    pod_address: str = ""
    """POD_IP: where the Service of the plan API leads while we decide; empty: it is left alone."""
    fresh_seconds: float = 90.0
    """GPUPACK_FRESH_SECONDS: with a watch silent for longer nothing is decided; LEAST_FRESH or
    more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    decisions: Decisions
    serving: Serving
    leader_election: LeaderElection
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and what it may be.
        """
        environment = Environment(environ)
        return cls(
            decisions=_decisions(environment),
            serving=_serving(environment),
            leader_election=_leader_election(environment),
            log_level=environment.log_level(),
        )


def _decisions(environment: Environment) -> Decisions:
    return Decisions(
        mode=environment.choice("GPUPACK_MODE", Mode, Mode.DECISIVE),
        policy=environment.parsed(
            "GPUPACK_POLICY", _policy, core.DEFAULT_POLICY, f"one of {', '.join(core.POLICIES)}"
        ),
        outlook=environment.parsed(
            "GPUPACK_OUTLOOK", _outlook, None, "an outlook as gpupack-simulator writes it"
        ),
        observed_resources=environment.parsed(
            "GPUPACK_OBSERVED_RESOURCES", names.foreign_resources, (), names.FOREIGN_RESOURCES
        ),
        acceptance=environment.stated("GPUPACK_ACCEPTANCE", parse_acceptance, None),
        plan_hold_seconds=environment.seconds("GPUPACK_PLAN_HOLD_SECONDS", 10.0, most=MOST_SECONDS),
        assume_seconds=environment.seconds("GPUPACK_ASSUME_SECONDS", 30.0, most=MOST_SECONDS),
        queue=environment.parsed(
            "GPUPACK_QUEUE",
            _queue,
            QueueSettings(),
            "settings as the chart writes them",
        ),
    )


def _serving(environment: Environment) -> Serving:
    return Serving(
        verbs_port=environment.whole("GPUPACK_VERBS_PORT", 8888, most=MOST_PORT),
        plan_port=environment.whole("GPUPACK_PLAN_PORT", 8443, most=MOST_PORT),
        health_port=environment.whole("GPUPACK_HEALTH_PORT", 8081, most=MOST_PORT),
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
        fresh_seconds=environment.seconds(
            "GPUPACK_FRESH_SECONDS", 90.0, least=LEAST_FRESH, most=MOST_SECONDS
        ),
    )


def _policy(text: str) -> str:
    try:
        core.policy_named(text)
    except core.UnknownPolicy as error:
        raise ValueError(text) from error
    return text


def _queue(text: str) -> QueueSettings:
    try:
        return msgspec.json.decode(text, type=QueueSettings)
    except msgspec.MsgspecError as error:
        raise SettingsInvalid(f"GPUPACK_QUEUE is not valid: {error}") from error


def _outlook(text: str) -> core.Outlook:
    try:
        return core.load_outlook(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, core.InvalidSnapshot) as error:
        raise SettingsInvalid(f"GPUPACK_OUTLOOK is not valid: {error}") from error
