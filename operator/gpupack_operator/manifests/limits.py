# SPDX-License-Identifier: Apache-2.0
"""How a worker's container asks for its GPUs."""

from gpupack_crds import names, quantity
from gpupack_crds.gpujob import GpuJobSpec


def limits(spec: GpuJobSpec) -> dict[str, str]:
    """Limits of the worker container: whole GPUs, or a share of one.

    A share's memory in whole MiB, as the ledger counts it: Kubernetes takes integers alone for such
    a resource, and 0.1Gi is not a whole number of bytes.
    """
    if spec.share is None:
        return {spec.resource_name: str(spec.gpus or 1)}
    return {
        names.GPU_SHARE: "1",
        names.GPU_PERCENT: str(spec.share.percent),
        names.GPU_MEMORY: f"{quantity.mebibytes(spec.share.memory)}Mi",
    }
