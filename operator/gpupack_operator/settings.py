# SPDX-License-Identifier: Apache-2.0
"""Settings, from the environment."""

import dataclasses
import pathlib
from collections.abc import Mapping

from gpupack_crds import names
from gpupack_operator.decision.model import Limits
from gpupack_operator.errors import SettingInvalid
from gpupack_operator.liveness import heartbeat_file
from gpupack_operator.manifests.pod import PodDefaults

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_EXTENDER = f"https://gpupack-extender.{names.SYSTEM_NAMESPACE}.svc:8443"
DEFAULT_TOKEN = "/var/run/secrets/gpupack/token"  # noqa: S105 - a path, not a secret


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Who works, when there are several operators.

    Attributes:
        name: the Lease's name.
        namespace: its namespace.
        holder: our name; a restarted container of the same pod gets its Lease back at once.
        seconds: how long after the holder's last sign of life another may take over.
    """

    name: str
    namespace: str
    holder: str
    seconds: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlanSettings:
    """How to reach the plan API.

    Attributes:
        url: scheme, host and port.
        ca: file of the certificate authority; None: the system's.
        token: file of a token for the audience gpupack-extender; read at each call.
    """

    url: str
    ca: pathlib.Path | None
    token: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the operator is told.

    Attributes:
        namespace: serve this namespace only; empty: all.
        reconcilers: how many GPUJobs are worked on at the same time.
        heartbeat: file by which the probe knows that the operator is well.
        log_level: of Python's logging.
    """

    lease: LeaseSettings
    plan: PlanSettings
    pods: PodDefaults
    limits: Limits
    namespace: str
    reconcilers: int
    heartbeat: pathlib.Path
    log_level: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read the settings.

        Raises:
            SettingInvalid: a variable is missing or cannot be used; the message names it.
        """
        return cls(
            lease=_lease(environ),
            plan=_plan(environ),
            pods=_pods(environ),
            limits=_limits(environ),
            namespace=environ.get("GPUPACK_WATCH_NAMESPACE", ""),
            reconcilers=_number(environ, "GPUPACK_RECONCILERS", 8),
            heartbeat=heartbeat_file(environ),
            log_level=_log_level(environ),
        )


def _lease(environ: Mapping[str, str]) -> LeaseSettings:
    return LeaseSettings(
        name=environ.get("GPUPACK_LEASE_NAME", names.OPERATOR_LEASE),
        namespace=environ.get("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
        holder=_required(environ, "POD_NAME"),
        seconds=_number(environ, "GPUPACK_LEASE_SECONDS", 10),
    )


def _plan(environ: Mapping[str, str]) -> PlanSettings:
    ca = environ.get("GPUPACK_EXTENDER_CA", "")
    return PlanSettings(
        url=environ.get("GPUPACK_EXTENDER_URL", DEFAULT_EXTENDER).rstrip("/"),
        ca=pathlib.Path(ca) if ca else None,
        token=pathlib.Path(environ.get("GPUPACK_EXTENDER_TOKEN_FILE", DEFAULT_TOKEN)),
    )


def _pods(environ: Mapping[str, str]) -> PodDefaults:
    return PodDefaults(
        workload_image=_required(environ, "GPUPACK_WORKLOAD_IMAGE"),
        priority_class=environ.get("GPUPACK_PRIORITY_CLASS", ""),
        shm_size=environ.get("GPUPACK_SHM_SIZE", "8Gi"),
        evict_seconds=_number(environ, "GPUPACK_EVICT_SECONDS", 20, least=0),
    )


def _limits(environ: Mapping[str, str]) -> Limits:
    return Limits(
        bind_seconds=_number(environ, "GPUPACK_BIND_TIMEOUT_SECONDS", 60),
        start_seconds=_number(environ, "GPUPACK_START_TIMEOUT_SECONDS", 60),
        image_seconds=_number(environ, "GPUPACK_IMAGE_TIMEOUT_SECONDS", 120),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SettingInvalid(f"{name} is not set; the operator cannot run without it")
    return value


def _number(environ: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = environ.get(name, "")
    try:
        number = int(text) if text else default
    except ValueError as error:
        raise SettingInvalid(f"{name}={text!r} is not a number") from error
    if number < least:
        raise SettingInvalid(f"{name}={text!r} is too small; the least is {least}")
    return number


def _log_level(environ: Mapping[str, str]) -> str:
    level = environ.get("GPUPACK_LOG_LEVEL", "") or "INFO"
    if level.upper() not in LOG_LEVELS:
        known = ", ".join(LOG_LEVELS)
        raise SettingInvalid(f"GPUPACK_LOG_LEVEL={level!r} is no log level; take one of {known}")
    return level.upper()
