# SPDX-License-Identifier: Apache-2.0
"""How many GPUs a GPUJob asks for, in words."""

from gpupack_crds.gpujob import GpuJobSpec


def column(spec: GpuJobSpec) -> str:
    """GPUs of all workers for a column: `8`, or `2x40%` of one GPU each."""
    if spec.share is None:
        return str(spec.workers * (spec.gpus or 1))
    share = f"{spec.share.percent}%"
    return share if spec.workers == 1 else f"{spec.workers}x{share}"


def phrase(spec: GpuJobSpec) -> str:
    """The same in a sentence: `8 GPUs`, `40% of a GPU`."""
    number = column(spec)
    if spec.share is not None:
        return f"{number} of a GPU"
    return "1 GPU" if number == "1" else f"{number} GPUs"
