# SPDX-License-Identifier: Apache-2.0
"""Number of GPUs that a GPUJob requests, in words."""

from gpupack_crds.gpujob import GpuJobSpec


def column(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """Return a column's text with the GPUs of `workers`: `8`, `2x40%` of a GPU, `4x1g.18gb`."""
    count = spec.workers if workers is None else workers
    if spec.mig is not None:
        return f"{count * (spec.gpus or 1)}x{spec.mig}"
    if spec.share is None:
        return str(count * (spec.gpus or 1))
    share = f"{spec.share.percent}%"
    return share if count == 1 else f"{count}x{share}"


def number(spec: GpuJobSpec) -> int:
    """Return the whole GPUs of all workers that start together; a share counts as one."""
    return spec.least * (spec.gpus or 1)


def phrase(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """Return the number for a sentence: `8 GPUs`, `40% of a GPU`."""
    number = column(spec, workers=workers)
    if spec.share is not None:
        return f"{number} of a GPU"
    if spec.mig is not None:
        slices, _, profile = number.partition("x")
        return f"{slices} MIG slice{'' if slices == '1' else 's'} {profile}"
    return "1 GPU" if number == "1" else f"{number} GPUs"
