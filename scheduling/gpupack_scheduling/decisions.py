# SPDX-License-Identifier: Apache-2.0
"""How places are chosen, as the environment says it."""

import dataclasses
import enum
from typing import Any, Final

import msgspec

import gpupack_core as core
from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_kube.environment import Environment, SettingsInvalid
from gpupack_scheduling.queueing.settings import QueueSettings

MAX_SECONDS: Final = 3600.0


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
    max_priority: int = 0
    """GPUPACK_MAX_PRIORITY: the largest priority in the queue without a class that evicts nobody,
    of a GPUJob as its own number, of a pod by any other class."""
    assume_seconds: float = 30.0
    """GPUPACK_ASSUME_SECONDS: a place that filter gave is free again when no bind came by then."""
    avoid_seconds: float = 600
    """GPUPACK_AVOID_NODE_SECONDS, as the operator's, which asks by it: for so long after an attempt
    broke on a node the next ones rather go elsewhere."""
    queue: QueueSettings = dataclasses.field(default_factory=QueueSettings)
    """GPUPACK_QUEUE, JSON: how the queue is run."""

    @classmethod
    def of(cls, environment: Environment) -> "Decisions":
        """Read them; raises SettingsInvalid."""
        return cls(
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
