# SPDX-License-Identifier: Apache-2.0
"""How long a pod runs and takes to end, by its spec."""

import math
from typing import Final

from gpupack_kubeclient import objects

MAX_GRACE_SECONDS: Final = 3600
"""The maximum of a grace period that counts. A longer one would make preemptors wait too long."""


def duration_of(spec: objects.PodSpec) -> float | None:
    """Return the seconds that a standalone pod runs at most; None: unknown.

    A pod whose containers always restart has no end: a Deployment's or StatefulSet's pod, or a
    notebook. A batch pod without a deadline has one that nothing states.
    """
    deadline = spec.active_deadline_seconds
    if deadline is not None and deadline > 0:
        return float(deadline)
    return math.inf if spec.restart_policy == "Always" else None


def grace_of(spec: objects.PodSpec) -> float:
    """Return the seconds that a pod may take to end; no more than a GPUJob may state."""
    return float(min(max(spec.termination_grace_period_seconds, 0), MAX_GRACE_SECONDS))
