# SPDX-License-Identifier: Apache-2.0
"""Rules of cohorts for their members, which scheduler and operator must find alike."""

from collections.abc import Callable
from typing import Final, TypeVar

from gpupack_crds.gpucohort import CLUSTER_NAME, GpuCohortSpec
from gpupack_crds.gpujob_status import RunLimit

R = TypeVar("R")

MAX_LEVELS: Final = 33
"""Maximum of cohorts on the way up: a cohort, and those that a queue's tree has above it."""


def nearest_rule(
    cohort: str | None,
    spec_of: Callable[[str], GpuCohortSpec | None],
    pick: Callable[[GpuCohortSpec], R | None],
) -> tuple[str, R] | None:
    """Return the rule of the nearest cohort that has one, with that cohort's name.

    The search goes from `cohort` up to GPUCohort `cluster`. Cohorts may form a ring.
    `spec_of` returns a cohort's spec by its name; None: there is no such cohort.
    """
    name = cohort
    for _ in range(MAX_LEVELS):
        found = spec_of(name) if name else None
        if found is None or name is None:
            break
        if (rule := pick(found)) is not None:
            return name, rule
        name = found.parent
    root = spec_of(CLUSTER_NAME)
    rule = pick(root) if root else None
    return None if rule is None else (CLUSTER_NAME, rule)


def run_limit(
    cohort: str | None, spec_of: Callable[[str], GpuCohortSpec | None]
) -> RunLimit | None:
    """Return the maximum run time of the members of a cohort; None: there is none."""
    found = nearest_rule(cohort, spec_of, lambda spec: spec.max_run_seconds)
    return None if found is None else RunLimit(seconds=found[1], cohort=found[0])
