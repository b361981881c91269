# SPDX-License-Identifier: Apache-2.0
"""Conditions, and the phase that is derived from them."""

import datetime as dt
import enum

from msgspec import structs

from gpupack_crds.condition import Condition, ConditionStatus, transition_time
from gpupack_crds.gpujob_status import ENDED_PHASES, GpuJobStatus, Phase
from gpupack_crds.times import format_time
from gpupack_operator.decision.reasons import JobReason

MESSAGE_CHARACTERS = 2048
MAX_MESSAGE_CHARACTERS = 4096


class Type(enum.StrEnum):
    """Types of conditions."""

    ADMITTED = "Admitted"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RESULTS_VALID = "ResultsValid"
    STALLED = "Stalled"
    """True: the operator fails to reconcile this GPUJob and retries; the message names the error.
    """
    NODES_REQUESTED = "NodesRequested"
    """True: nodes were requested from the autoscaler. Set only if a job ever requested nodes."""
    FAST_COMMUNICATION = "FastCommunication"
    """False: workers that NVLink connects report other transports. Set only if they report any."""


OCCASIONAL = frozenset({Type.NODES_REQUESTED, Type.FAST_COMMUNICATION})
"""Conditions that many jobs never have."""


class Writer:
    """Writer that changes conditions at one fixed time; it returns new statuses."""

    def __init__(self, *, now: dt.datetime, generation: int) -> None:
        self._now = format_time(now)
        self._generation = generation

    def first(self, status: GpuJobStatus) -> GpuJobStatus:
        """Give a status all conditions: a missing one would make `kubectl wait` wait in vain."""
        there = {condition.type for condition in status.conditions}
        for kind in Type:
            if kind not in there and kind not in OCCASIONAL:
                value: ConditionStatus = "False" if kind is Type.STALLED else "Unknown"
                status = self.set(status, kind, value, JobReason.UNDETERMINED, "")
        return status

    def set(
        self,
        status: GpuJobStatus,
        kind: Type,
        value: ConditionStatus,
        reason: str,
        message: str,
    ) -> GpuJobStatus:
        """Set one condition; its transition time moves only with its value."""
        old = get(status, kind)
        new = Condition(
            type=kind.value,
            status=value,
            reason=str(reason),
            message=clip(message),
            last_transition_time=transition_time(old, value, self._now),
            observed_generation=self._generation,
        )
        others = {condition.type: condition for condition in status.conditions}
        changed = structs.replace(status, conditions=tuple((others | {kind.value: new}).values()))
        return with_phase(changed)

    def without(self, status: GpuJobStatus, kind: Type) -> GpuJobStatus:
        """Remove a condition."""
        kept = tuple(found for found in status.conditions if found.type != kind)
        if len(kept) == len(status.conditions):
            return status
        return with_phase(structs.replace(status, conditions=kept))


def get(status: GpuJobStatus, kind: Type) -> Condition | None:
    """Return the condition of a type, if it was ever set."""
    return next((found for found in status.conditions if found.type == kind), None)


def clip(message: str, characters: int = MESSAGE_CHARACTERS) -> str:
    """Shorten a message to a length that the CRD's schema accepts."""
    return message if len(message) <= characters else message[: characters - 1] + "…"


def with_phase(status: GpuJobStatus) -> GpuJobStatus:
    """Set phase, reason and message, from the conditions alone."""
    phase, deciding = _deciding(status)
    stall = get(status, Type.STALLED)
    if stall and stall.status == "True" and phase not in ENDED_PHASES:
        deciding = stall
    return structs.replace(
        status,
        phase=phase,
        reason=deciding.reason if deciding else "",
        message=clip(_full_message(status, phase, deciding), MAX_MESSAGE_CHARACTERS),
    )


def _full_message(status: GpuJobStatus, phase: Phase, deciding: Condition | None) -> str:
    """Append the state of a pending job's node request, or another job's slow communication."""
    message = deciding.message if deciding else ""
    kind = Type.NODES_REQUESTED if phase == "Pending" else Type.FAST_COMMUNICATION
    more = get(status, kind)
    silent = {JobReason.PROVISIONING_WITHDRAWN, JobReason.NVLINK_USED}
    if more is None or more.reason in silent:
        return message
    return f"{message}; {more.message}" if message else more.message


_PHASES: tuple[tuple[Type, Phase], ...] = (
    (Type.FAILED, "Failed"),
    (Type.SUCCEEDED, "Succeeded"),
    (Type.RUNNING, "Running"),
    (Type.ADMITTED, "Admitted"),
)
"""The first of these conditions that is true determines the phase."""


def _deciding(status: GpuJobStatus) -> tuple[Phase, Condition | None]:
    for kind, phase in _PHASES:
        condition = get(status, kind)
        if condition and condition.status == "True":
            return phase, _admitted_condition(status) if kind is Type.ADMITTED else condition
    return _not_running(status)


def _not_running(status: GpuJobStatus) -> tuple[Phase, Condition | None]:
    admitted = get(status, Type.ADMITTED)
    suspended = admitted is not None and admitted.reason == JobReason.SUSPENDED
    return ("Suspended" if suspended else "Pending"), admitted


def _admitted_condition(status: GpuJobStatus) -> Condition | None:
    """Return the condition that says why an admitted job does not run, or where its places are."""
    running = get(status, Type.RUNNING)
    waits_quietly = running is None or running.reason == JobReason.STARTING
    return get(status, Type.ADMITTED) if waits_quietly else running
