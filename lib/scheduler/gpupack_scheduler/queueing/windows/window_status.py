# SPDX-License-Identifier: Apache-2.0
"""The statuses of GPUReservations, by the queue's report of its windows."""

from typing import Final

from gpupack_crds.condition import Condition, ConditionStatus, transition_time
from gpupack_crds.gpureservation import ACCEPTED, HONORED, GpuReservationStatus, Phase
from gpupack_crds.kinds import GpuReservation
from gpupack_crds.times import format_seconds
from gpupack_devices.units import WHOLE_GPU
from gpupack_queue import WindowReport
from gpupack_scheduler.queueing.quotas.usage import gpus
from gpupack_scheduler.queueing.windows.reserved_windows import Problem

HELP: Final = "jobs that may not be preempted, or unhealthy GPUs, are in the way"


def reservation_status(
    item: GpuReservation, report: WindowReport | None, problem: Problem | None, now: float
) -> GpuReservationStatus:
    """Return the status; `report`: of the current or next window; None: none follows."""
    reserved = gpus(item.spec.total_gpus * WHOLE_GPU)
    generation = item.metadata.generation
    if problem is not None:
        refused = _condition(item, ACCEPTED, "False", problem.reason, problem.message, now)
        return GpuReservationStatus(
            observed_generation=generation,
            phase="Refused",
            gpus=reserved,
            conditions=(refused,),
        )
    accepted = _condition(item, ACCEPTED, "True", "WithinQuota", "the reservation stands", now)
    if report is None:
        return GpuReservationStatus(
            observed_generation=generation, phase="Ended", gpus=reserved, conditions=(accepted,)
        )
    phase: Phase = "Active" if report.is_active else "Upcoming"
    return GpuReservationStatus(
        observed_generation=generation,
        phase=phase,
        window_start=format_seconds(report.window.start),
        window_end=format_seconds(report.window.end),
        gpus=reserved,
        used=gpus(report.used),
        held=gpus(report.held),
        missing=gpus(report.missing),
        preempting=len(report.victims),
        conditions=(accepted, _honored(item, report, now)),
    )


def _honored(item: GpuReservation, report: WindowReport, now: float) -> Condition:
    if report.missing:
        when = "missing" if report.is_active else "missing at the start of the window as things are"
        text = f"{gpus(report.missing)} GPUs are {when}: {HELP}"
        return _condition(item, HONORED, "False", "GpusMissing", text, now)
    if report.victims:
        text = f"{len(report.victims)} jobs are being preempted for the window"
        return _condition(item, HONORED, "False", "PreemptionPending", text, now)
    return _condition(item, HONORED, "True", "GpusFound", "the GPUs of the window are there", now)


def _condition(
    item: GpuReservation,
    kind: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    now: float,
) -> Condition:
    before = next((each for each in item.status.conditions if each.type == kind), None)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=transition_time(before, status, format_seconds(now)),
        observed_generation=item.metadata.generation,
    )
