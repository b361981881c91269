# SPDX-License-Identifier: Apache-2.0
"""Settings, from the environment."""

import dataclasses
import pathlib
from collections.abc import Mapping

import msgspec

from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_crds.vendors import Vendors, parse_vendors
from gpupack_httpserver.settings import MetricsSettings
from gpupack_kubeclient.environment import PULL_POLICIES, Environment
from gpupack_operator.decision.model import Limits
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.liveness import heartbeat_path
from gpupack_operator.manifests.pod import PodDefaults
from gpupack_operator.manifests.provisioning import ATOMIC_CLASS
from gpupack_operator.manifests.pulling import PullSettings
from gpupack_operator.nodes_limits import NodesLimits

DEFAULT_EXTENDER = f"https://gpupack-extender.{names.SYSTEM_NAMESPACE}.svc:8443"
DEFAULT_TOKEN = "/var/run/secrets/gpupack/token"  # noqa: S105 - a path, not a secret


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Election of the leader among several operators.

    Attributes:
        name: the Lease's name.
        namespace: the Lease's namespace.
        holder: this operator's name; a restarted container of the same pod gets its Lease back at
            once.
        seconds: how long after the holder's last renewal another may take over.
    """

    name: str
    namespace: str
    holder: str
    seconds: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlanSettings:
    """Access to the plan API.

    Attributes:
        url: scheme, host and port.
        ca: file of the certificate authority; None: the system's authorities.
        token: file of a token for the audience gpupack-extender; read at each call.
    """

    url: str
    ca: pathlib.Path | None
    token: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator.

    Attributes:
        provisioning: how nodes are requested; None: not at all.
        nodes_limits: limits of concurrent requests for nodes.
        namespace: the only namespace to serve; empty: all.
        probation_seconds: how long a GPU that became unhealthy must have stayed healthy.
        acceptance: how GPUs are tested before they are used; None: time alone decides, as where
            only one namespace is served and it is not that of burn-ins.
        max_priority: the largest priority that a GPUJob may set itself as a number.
        saves_logs: whether the last lines of stopped workers are saved.
        reconcilers: number of GPUJobs that are reconciled concurrently.
        heartbeat: file from which the probe knows that the operator is healthy.
        metrics: settings of /metrics.
        log_level: level of Python's logging.
    """

    lease: LeaseSettings
    plan: PlanSettings
    pods: PodDefaults
    limits: Limits
    provisioning: Provisioning | None
    nodes_limits: NodesLimits
    namespace: str
    probation_seconds: float
    acceptance: Acceptance | None
    max_priority: int
    saves_logs: bool
    reconcilers: int
    heartbeat: pathlib.Path
    metrics: MetricsSettings
    log_level: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Read the settings.

        Raises:
            SettingsInvalid: a variable is missing or cannot be used; the message names it.
        """
        environment = Environment(environ)
        return cls(
            lease=_lease(environment),
            plan=_plan(environment),
            pods=_pods(environment),
            limits=_limits(environment),
            provisioning=_provisioning(environment),
            nodes_limits=_nodes_limits(environment),
            namespace=environment.text("GPUPACK_WATCH_NAMESPACE", ""),
            probation_seconds=environment.seconds("GPUPACK_PROBATION_SECONDS", 600.0),
            acceptance=_acceptance(environment),
            max_priority=environment.whole("GPUPACK_MAX_PRIORITY", 0, least=0),
            saves_logs=_switch(environment, "GPUPACK_SAVED_LOGS", usual="true"),
            reconcilers=environment.whole("GPUPACK_RECONCILERS", 8),
            heartbeat=heartbeat_path(environ),
            metrics=MetricsSettings.of(environment),
            log_level=environment.log_level(),
        )


def _lease(environment: Environment) -> LeaseSettings:
    return LeaseSettings(
        name=environment.text("GPUPACK_LEASE_NAME", names.OPERATOR_LEASE),
        namespace=environment.text("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE),
        holder=environment.required("POD_NAME", "this pod's name (downward API)"),
        seconds=environment.whole("GPUPACK_LEASE_SECONDS", 10),
    )


def _plan(environment: Environment) -> PlanSettings:
    ca = environment.text("GPUPACK_EXTENDER_CA", "")
    return PlanSettings(
        url=environment.text("GPUPACK_EXTENDER_URL", DEFAULT_EXTENDER).rstrip("/"),
        ca=pathlib.Path(ca) if ca else None,
        token=environment.path("GPUPACK_EXTENDER_TOKEN_FILE", DEFAULT_TOKEN),
    )


def _pods(environment: Environment) -> PodDefaults:
    return PodDefaults(
        workload_image=environment.required("GPUPACK_WORKLOAD_IMAGE", "the image of workloads"),
        priority_class=environment.text("GPUPACK_PRIORITY_CLASS", ""),
        shm_size=environment.text("GPUPACK_SHM_SIZE", "8Gi"),
        evict_seconds=environment.whole("GPUPACK_EVICT_AFTER_SECONDS", 20, least=0),
        multicast=_switch(environment, "GPUPACK_NVLINK_MULTICAST"),
        socket_defaults=_switch(environment, "GPUPACK_SOCKET_DEFAULTS", usual="true"),
        vendors=environment.stated("GPUPACK_VENDORS", parse_vendors, Vendors()),
        launcher_image=environment.text("GPUPACK_LAUNCHER_IMAGE", ""),
        pulling=PullSettings(
            policy=environment.choice("GPUPACK_IMAGE_PULL_POLICY", PULL_POLICIES, PULL_POLICIES[0]),
            secrets=environment.words("GPUPACK_IMAGE_PULL_SECRETS"),
        ),
    )


def _switch(environment: Environment, name: str, usual: str = "false") -> bool:
    return environment.choice(name, ("true", "false"), usual) == "true"


def _limits(environment: Environment) -> Limits:
    return Limits(
        bind_seconds=environment.whole("GPUPACK_BIND_TIMEOUT_SECONDS", 60),
        bind_workers_per_second=environment.whole("GPUPACK_BIND_WORKERS_PER_SECOND", 10),
        start_seconds=environment.whole("GPUPACK_START_TIMEOUT_SECONDS", 60),
        image_seconds=environment.whole("GPUPACK_IMAGE_TIMEOUT_SECONDS", 120),
        avoid_seconds=environment.whole("GPUPACK_AVOID_NODE_SECONDS", 600, least=0),
    )


def _acceptance(environment: Environment) -> Acceptance | None:
    served = environment.text("GPUPACK_WATCH_NAMESPACE", "")
    found = environment.stated("GPUPACK_ACCEPTANCE", parse_acceptance, None)
    return found if served in {"", names.ACCEPTANCE_NAMESPACE} else None


def _provisioning(environment: Environment) -> Provisioning | None:
    if not _switch(environment, "GPUPACK_PROVISIONING"):
        return None
    return Provisioning(
        class_name=environment.text("GPUPACK_PROVISIONING_CLASS", ATOMIC_CLASS),
        parameters=environment.parsed(
            "GPUPACK_PROVISIONING_PARAMETERS", _texts, {}, "a JSON object of texts"
        ),
        after_seconds=environment.whole("GPUPACK_PROVISIONING_AFTER_SECONDS", 60, least=0),
        min_wait_seconds=environment.whole(
            "GPUPACK_PROVISIONING_MIN_ESTIMATED_WAIT_SECONDS", 300, least=0
        ),
        decision_seconds=environment.whole("GPUPACK_PROVISIONING_DECISION_TIMEOUT_SECONDS", 900),
        place_seconds=environment.whole("GPUPACK_PROVISIONING_PLACEMENT_TIMEOUT_SECONDS", 600),
        retry_after_seconds=environment.whole("GPUPACK_PROVISIONING_COOLDOWN_SECONDS", 60, least=0),
        backoff_seconds=environment.whole("GPUPACK_PROVISIONING_BACKOFF_SECONDS", 60),
        max_backoff_seconds=environment.whole("GPUPACK_PROVISIONING_MAX_BACKOFF_SECONDS", 1800),
        max_failures=environment.whole("GPUPACK_PROVISIONING_MAX_FAILURES", 3),
    )


def _nodes_limits(environment: Environment) -> NodesLimits:
    return NodesLimits(
        requests=environment.whole("GPUPACK_PROVISIONING_MAX_REQUESTS", 10, least=0),
        gpus=environment.whole("GPUPACK_PROVISIONING_MAX_GPUS", 256, least=0),
        namespace_requests=environment.whole(
            "GPUPACK_PROVISIONING_NAMESPACE_MAX_REQUESTS", 2, least=0
        ),
        namespace_gpus=environment.whole("GPUPACK_PROVISIONING_NAMESPACE_MAX_GPUS", 64, least=0),
        interval_seconds=environment.whole(
            "GPUPACK_PROVISIONING_NAMESPACE_INTERVAL_SECONDS", 60, least=0
        ),
    )


def _texts(text: str) -> dict[str, str]:
    """Read a JSON object of texts; msgspec's errors are ValueErrors."""
    return msgspec.json.decode(text, type=dict[str, str])
