# SPDX-License-Identifier: Apache-2.0
"""GPUQuota: the GPUs promised to a namespace.

Administrators write the spec, the extender writes the status.
"""

from typing import Annotated, Final, Literal

from gpupack_crds.quota import Cohort, Limits, Weight
from gpupack_crds.wire import Rule, Wire, described

QUOTA_NAME: Final = "default"
"""Name of a namespace's only quota: with several, none would clearly apply."""


class GpuQuotaSpec(Wire, frozen=True):
    """How many GPUs a namespace is promised, and how many it may use beyond that.

    A namespace without a quota is promised nothing, and borrows what is idle.
    """

    cohort: Cohort | None = None
    weight: Weight = 1
    gpus: Limits = ()
    job_order: Annotated[
        Literal["Age", "UserFairShare"],
        described(
            "Order of pending jobs of equal priority within the namespace. Age: the oldest first. "
            "UserFairShare: first the jobs of the user that uses the smallest part of the "
            "cluster's GPUs, then the oldest; the user is in the annotation "
            "gpupack.dev/created-by. Default: Age."
        ),
    ] = "Age"


NAME_RULES: Final = (
    Rule(
        f"self.metadata.name == '{QUOTA_NAME}'",
        f"a namespace has one GPUQuota; call it {QUOTA_NAME}",
    ),
)
