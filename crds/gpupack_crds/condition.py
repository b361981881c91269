# SPDX-License-Identifier: Apache-2.0
"""Conditions in the statuses of gpupack's kinds."""

from typing import Annotated, Final, Literal

from gpupack_crds.wire import Timestamp, Wire, described

ConditionStatus = Literal["True", "False", "Unknown"]

BY_TYPE: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
"""Schema of a status with at most one condition of a type."""


class Condition(Wire, frozen=True):
    """A condition, as in other kinds of Kubernetes."""

    type: Annotated[str, described("Type of the condition.", min_length=1, max_length=64)]
    status: Annotated[ConditionStatus, described("True, False or Unknown.")]
    reason: Annotated[
        str, described("Reason of the last transition, in CamelCase.", min_length=1, max_length=128)
    ]
    message: Annotated[str, described("Details for users.", max_length=4096)]
    last_transition_time: Annotated[Timestamp, described("Time at which the status last changed.")]
    observed_generation: Annotated[
        int, described("Generation of the spec on which the condition is based.", ge=0)
    ] = 0


def transition_time(before: Condition | None, status: ConditionStatus, now: str) -> str:
    """Return when a condition last changed its status: now, unless it had the same one before."""
    if before is None or before.status != status:
        return now
    return before.last_transition_time
