# SPDX-License-Identifier: Apache-2.0
"""Settings of placement and queue, from the environment."""

import dataclasses
import enum
from typing import Any, Final

import msgspec

from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_kubeclient.environment import Environment, SettingsInvalid
from gpupack_placement import (
    DEFAULT_POLICY,
    POLICIES,
    DemandForecast,
    InvalidSnapshot,
    UnknownPolicy,
    load_forecast,
    policy_named,
)
from gpupack_scheduler.queueing.settings import QueueSettings

MAX_SECONDS: Final = 3600.0


class Mode(enum.StrEnum):
    """The component that chooses the node of a pod without a plan."""

    DECISIVE = "decisive"
    """The extender: filter returns one node."""
    ADVISORY = "advisory"
    """kube-scheduler: filter passes every node that fits, prioritize ranks them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Settings of how places are chosen, and for how long an answer holds them."""

    mode: Mode = Mode.DECISIVE
    """GPUPACK_MODE: the component that chooses the node of a pod without a plan."""
    policy: str = DEFAULT_POLICY
    """GPUPACK_POLICY: the placement policy where a job names none."""
    demand_forecast: DemandForecast | None = None
    """GPUPACK_DEMAND_FORECAST, JSON as in demand_forecast_document.py. If absent, it is learned."""
    plan_hold_seconds: float = 10.0
    """GPUPACK_PLAN_HOLD_SECONDS: the time within which the operator writes a plan into the GPUJob,
    or never.

    A new leader makes no plan during this time, so that it cannot contradict its predecessor's
    plans."""
    observed_resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES, separated by commas: resources of other device plugins, such as
    nvidia.com/gpu. gpupack places jobs on their nodes and does not choose the devices."""
    acceptance: Acceptance | None = None
    """GPUPACK_ACCEPTANCE, JSON as the chart writes it: the GPUs that get a burn-in before their
    use."""
    max_priority: int = 0
    """GPUPACK_MAX_PRIORITY: the largest priority in the queue without a PriorityClass that has
    preemptionPolicy Never. It bounds the number in a GPUJob, and the value of any other class of a
    pod."""
    assume_seconds: float = 30.0
    """GPUPACK_ASSUME_SECONDS: a place that filter chose is free again if no bind comes by then."""
    avoid_seconds: float = 600
    """GPUPACK_AVOID_NODE_SECONDS: for this time after an attempt broke on a node, the next attempts
    avoid the node if possible. The operator has the same setting and sends the nodes."""
    queue: QueueSettings = dataclasses.field(default_factory=QueueSettings)
    """GPUPACK_QUEUE, JSON: the settings of the queue."""

    @classmethod
    def of(cls, environment: Environment) -> "Decisions":
        """Read the settings.

        Raises:
            SettingsInvalid: a setting cannot be read.
        """
        return cls(
            mode=environment.choice("GPUPACK_MODE", Mode, Mode.DECISIVE),
            policy=environment.parsed(
                "GPUPACK_POLICY", _policy, DEFAULT_POLICY, f"one of {', '.join(POLICIES)}"
            ),
            demand_forecast=environment.parsed(
                "GPUPACK_DEMAND_FORECAST",
                _forecast,
                None,
                "a demand forecast as gpupack-simulator writes it",
            ),
            observed_resources=environment.parsed(
                "GPUPACK_OBSERVED_RESOURCES", names.foreign_resources, (), names.FOREIGN_RESOURCES
            ),
            acceptance=environment.stated("GPUPACK_ACCEPTANCE", parse_acceptance, None),
            plan_hold_seconds=environment.seconds(
                "GPUPACK_PLAN_HOLD_SECONDS", 10.0, most=MAX_SECONDS
            ),
            max_priority=environment.whole("GPUPACK_MAX_PRIORITY", 0, least=0),
            assume_seconds=environment.seconds("GPUPACK_ASSUME_SECONDS", 30.0, most=MAX_SECONDS),
            avoid_seconds=environment.whole("GPUPACK_AVOID_NODE_SECONDS", 600, least=0),
            queue=environment.parsed(
                "GPUPACK_QUEUE",
                _queue,
                QueueSettings(),
                "settings as the chart writes them",
            ),
        )


def _policy(text: str) -> str:
    try:
        policy_named(text)
    except UnknownPolicy as error:
        raise ValueError(text) from error
    return text


def _queue(text: str) -> QueueSettings:
    try:
        return msgspec.json.decode(text, type=QueueSettings)
    except msgspec.MsgspecError as error:
        raise SettingsInvalid(f"GPUPACK_QUEUE is not valid: {error}") from error


def _forecast(text: str) -> DemandForecast:
    try:
        return load_forecast(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, InvalidSnapshot) as error:
        raise SettingsInvalid(f"GPUPACK_DEMAND_FORECAST is not valid: {error}") from error
