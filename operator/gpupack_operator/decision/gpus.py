# SPDX-License-Identifier: Apache-2.0
"""How many GPUs a GPUJob asks for, in words."""

from gpupack_crds.gpujob import GpuJobSpec


def column(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """GPUs of all workers, or of so many, for a column: `8`, `2x40%` of a GPU, `4x1g.18gb`."""
    count = spec.workers if workers is None else workers
    if spec.mig is not None:
        return f"{count * (spec.gpus or 1)}x{spec.mig}"
    if spec.share is None:
        return str(count * (spec.gpus or 1))
    share = f"{spec.share.percent}%"
    return share if count == 1 else f"{count}x{share}"


def number(spec: GpuJobSpec) -> int:
    """Whole GPUs of all workers that start together; shares count as one each."""
    return spec.least * (spec.gpus or 1)


def phrase(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """The same in a sentence: `8 GPUs`, `40% of a GPU`."""
    number = column(spec, workers=workers)
    if spec.share is not None:
        return f"{number} of a GPU"
    if spec.mig is not None:
        slices, _, profile = number.partition("x")
        return f"{slices} MIG slice{'' if slices == '1' else 's'} {profile}"
    return "1 GPU" if number == "1" else f"{number} GPUs"
