# SPDX-License-Identifier: Apache-2.0
"""GPUQuota: the GPUs promised to a namespace.

Administrators write the spec, the extender writes the status.
"""

from typing import Final

from gpupack_crds.quota import Cohort, Limits, Weight
from gpupack_crds.wire import Rule, Wire

QUOTA_NAME: Final = "default"
"""Name of a namespace's only quota: with several, none would clearly apply."""


class GpuQuotaSpec(Wire, frozen=True):
    """How many GPUs a namespace is promised, and how many it may use beyond that.

    A namespace without a quota is promised nothing, and borrows what is idle.
    """

    cohort: Cohort | None = None
    weight: Weight = 1
    gpus: Limits = ()


NAME_RULES: Final = (
    Rule(
        f"self.metadata.name == '{QUOTA_NAME}'",
        f"a namespace has one GPUQuota; call it {QUOTA_NAME}",
    ),
)
