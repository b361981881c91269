# SPDX-License-Identifier: Apache-2.0
"""Conditions in the statuses of gpupack's kinds."""

from typing import Annotated, Final, Literal

from gpupack_crds.wire import Timestamp, Wire, described

ConditionStatus = Literal["True", "False", "Unknown"]

BY_TYPE: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
"""Schema of a status with at most one condition of a type."""


class Condition(Wire, frozen=True):
    """A condition, as all of Kubernetes writes them."""

    type: Annotated[str, described("What the condition is about.", min_length=1, max_length=64)]
    status: Annotated[ConditionStatus, described("True, False or Unknown.")]
    reason: Annotated[
        str, described("A word for programs, in CamelCase.", min_length=1, max_length=128)
    ]
    message: Annotated[str, described("A sentence for people.", max_length=4096)]
    last_transition_time: Annotated[Timestamp, described("When the status last changed.")]
    observed_generation: Annotated[
        int, described("The generation of the spec that was looked at.", ge=0)
    ] = 0
