# SPDX-License-Identifier: Apache-2.0
"""Verdict of a preempted attempt, which ends through no fault of its own."""

from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.placement import by_worker
from gpupack_operator.decision.model import AttemptPreemption, Observation
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import Verdict


def preemption_verdict(observation: Observation, by: AttemptPreemption) -> Verdict:
    """Return a verdict with preemptor and reason; names of other namespaces are omitted."""
    namespace, name = by.preemptor
    if by.reason == "GpuFailed":
        message = f"a GPU of node {name} failed, {by.why}"
        worker = _first_on(observation, name)
        return Verdict(
            outcome="Infrastructure", reason=JobReason.GPU_FAILED, message=message, worker=worker
        )
    if by.kind == "node":
        message = f"stopped {PREEMPTION_TEXTS[by.reason]} {name}: {by.why}"
        return Verdict(outcome="Preempted", reason=by.reason, message=message)
    near = namespace == observation.job.metadata.namespace
    kind = "reservation" if by.kind == "reservation" else "job"
    preemptor = f"{by.kind} {name}" if near else f"a {kind} of another namespace"
    message = f"stopped for {preemptor}, {PREEMPTION_TEXTS[by.reason]}"
    return Verdict(outcome="Preempted", reason=by.reason, message=message)


def _first_on(observation: Observation, node: str) -> int | None:
    """Return the index of the first worker on a node."""
    placed = by_worker(observation.job.status.placement)
    return next((place.worker for place in placed if place.node == node), None)
