# SPDX-License-Identifier: Apache-2.0
"""What is said of those who are stopped for somebody else, by no fault of their own."""

from gpupack_crds.gpujob_status import GROUNDS
from gpupack_operator.decision.model import Observation, Preempted
from gpupack_operator.decision.view import Verdict


def preempted(observation: Observation, by: Preempted) -> Verdict:
    """For whom, or what, and with which right; nobody is told names of other namespaces."""
    namespace, name = by.beneficiary
    if by.kind == "node":
        message = f"stopped {GROUNDS[by.ground]} {name}: {by.why}"
        return Verdict(outcome="Preempted", reason=by.ground, message=message)
    near = namespace == observation.job.metadata.namespace
    whom = f"{by.kind} {name}" if near else "a job of another namespace"
    message = f"stopped for {whom}, {GROUNDS[by.ground]}"
    return Verdict(outcome="Preempted", reason=by.ground, message=message)
