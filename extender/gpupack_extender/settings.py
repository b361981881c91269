# SPDX-License-Identifier: Apache-2.0
"""Settings, read from the environment once at start."""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

import gpupack_core as core
from gpupack_crds import names
from gpupack_crds.gpujob import EXTENDED_RESOURCE
from gpupack_extender.errors import SettingsInvalid

T = TypeVar("T")

LEAST_FRESH: Final = 75.0
"""Seconds. Bookmarks come once a minute: with less a quiet cluster would look dead."""

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


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
    """GPUPACK_PLAN_HOLD_SECONDS: a plan that is not written into the GPUJob by then is gone.

    A new leader makes no plan for as long, so that it cannot contradict its predecessor's."""
    observed_resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES, separated by commas: resources of other device plugins, such as
    nvidia.com/gpu, whose nodes are packed without a say in devices."""
    assume_seconds: float = 30.0
    """GPUPACK_ASSUME_SECONDS: a place that filter gave is free again when no bind came by then."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where the servers listen."""

    verbs_port: int = 8888
    """GPUPACK_VERBS_PORT, on 127.0.0.1 only: kube-scheduler is in the same pod."""
    plan_port: int = 8443
    """GPUPACK_PLAN_PORT, HTTPS on all addresses: plan API, health, readiness, metrics."""
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """When the extender may speak for the cluster."""

    system_namespace: str = names.SYSTEM_NAMESPACE
    """GPUPACK_SYSTEM_NAMESPACE: where the leader's Lease is."""
    leader_lease: str = names.SCHEDULER_LEASE
    """GPUPACK_LEADER_LEASE: the Lease of kube-scheduler's own leader election."""
    pod_name: str = ""
    """POD_NAME: kube-scheduler's identity in that Lease begins with it."""
    fresh_seconds: float = 90.0
    """GPUPACK_FRESH_SECONDS: with a watch silent for longer nothing is decided; LEAST_FRESH or
    more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    decisions: Decisions
    serving: Serving
    standing: Standing
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and what it may be.
        """
        return cls(
            decisions=_decisions(environ),
            serving=_serving(environ),
            standing=_standing(environ),
            log_level=_read(
                environ, "GPUPACK_LOG_LEVEL", _level, "INFO", "one of " + ", ".join(LOG_LEVELS)
            ),
        )


def _decisions(environ: Mapping[str, str]) -> Decisions:
    return Decisions(
        mode=_read(environ, "GPUPACK_MODE", Mode, Mode.DECISIVE, "decisive or advisory"),
        policy=_read(
            environ,
            "GPUPACK_POLICY",
            _policy,
            core.DEFAULT_POLICY,
            "one of " + ", ".join(core.POLICIES),
        ),
        outlook=_outlook(environ),
        observed_resources=_read(
            environ,
            "GPUPACK_OBSERVED_RESOURCES",
            _resources,
            (),
            "names of extended resources such as nvidia.com/gpu, none of gpupack.dev, separated by "
            "commas",
        ),
        plan_hold_seconds=_seconds(environ, "GPUPACK_PLAN_HOLD_SECONDS", 10.0),
        assume_seconds=_seconds(environ, "GPUPACK_ASSUME_SECONDS", 30.0),
    )


def _serving(environ: Mapping[str, str]) -> Serving:
    return Serving(
        verbs_port=_read(environ, "GPUPACK_VERBS_PORT", _port, 8888, "a port, 1 to 65535"),
        plan_port=_read(environ, "GPUPACK_PLAN_PORT", _port, 8443, "a port, 1 to 65535"),
        tls_cert=_required(environ, "GPUPACK_TLS_CERT", "the path of the certificate"),
        tls_key=_required(environ, "GPUPACK_TLS_KEY", "the path of the certificate's key"),
    )


def _standing(environ: Mapping[str, str]) -> Standing:
    return Standing(
        system_namespace=environ.get("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
        leader_lease=environ.get("GPUPACK_LEADER_LEASE", names.SCHEDULER_LEASE),
        pod_name=_required(environ, "POD_NAME", "this pod's name (downward API)"),
        fresh_seconds=_read(
            environ, "GPUPACK_FRESH_SECONDS", _fresh, 90.0, f"{LEAST_FRESH:g} to 3600 seconds"
        ),
    )


def _required(environ: Mapping[str, str], name: str, meaning: str) -> str:
    if not environ.get(name):
        raise SettingsInvalid(f"{name} is not set; set it to {meaning}")
    return environ[name]


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return _read(environ, name, _positive, default, "seconds, more than 0 and at most 3600")


def _read(
    environ: Mapping[str, str], name: str, parse: Callable[[str], T], default: T, allowed: str
) -> T:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return parse(text)
    except (ValueError, KeyError, core.UnknownPolicy) as error:
        raise SettingsInvalid(f"{name}={text!r} is not valid; set it to {allowed}") from error


def _resources(text: str) -> tuple[str, ...]:
    resources = tuple(name.strip() for name in text.split(","))
    for name in resources:
        if not re.fullmatch(EXTENDED_RESOURCE, name) or name.startswith(f"{names.GROUP}/"):
            raise ValueError(name)
    return tuple(dict.fromkeys(resources))


def _policy(text: str) -> str:
    core.policy_named(text)
    return text


def _outlook(environ: Mapping[str, str]) -> core.Outlook | None:
    text = environ.get("GPUPACK_OUTLOOK", "")
    if not text:
        return None
    try:
        return core.load_outlook(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, core.InvalidSnapshot) as error:
        raise SettingsInvalid(f"GPUPACK_OUTLOOK is not valid: {error}") from error


def _level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise ValueError(text)
    return text.upper()


def _fresh(text: str) -> float:
    seconds = _positive(text)
    if seconds < LEAST_FRESH:
        raise ValueError(text)
    return seconds


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(text)
    return port


def _positive(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:  # noqa: PLR2004 - an hour; nan fails too
        raise ValueError(text)
    return seconds
