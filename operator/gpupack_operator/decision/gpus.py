# SPDX-License-Identifier: Apache-2.0
"""Number of GPUs that a GPUJob requests, in words."""

from typing import Final

from gpupack_crds.gpujob import GpuJobSpec, Role

MAX_COLUMN: Final = 32
"""Characters of the column."""


def column(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """Return a column's text with the GPUs of `workers`: `8`, `2x40%` of a GPU, `4x1g.18gb`."""
    if spec.roles:
        return _of_roles(spec)
    count = spec.workers if workers is None else workers
    if spec.mig is not None:
        return f"{count * (spec.gpus or 1)}x{spec.mig}"
    if spec.share is None:
        return str(count * (spec.gpus or 1))
    share = f"{spec.share.percent}%"
    return share if count == 1 else f"{count}x{share}"


def of_role(role: Role) -> str:
    """Return a column's text with the GPUs of a role's workers."""
    if role.share is None:
        return str(role.workers * (role.gpus or 1))
    share = f"{role.share.percent}%"
    return share if role.workers == 1 else f"{role.workers}x{share}"


def _of_roles(spec: GpuJobSpec) -> str:
    """Return the whole GPUs of all roles and the shares of each: `8`, `8+40%`, `8+2 shares`."""
    whole = sum(role.workers * (role.gpus or 0) for role in spec.roles)
    shares = [of_role(role) for role in spec.roles if role.share is not None]
    text = "+".join([*([str(whole)] if whole else []), *shares])
    if len(text) <= MAX_COLUMN:
        return text
    number = sum(role.workers for role in spec.roles if role.share is not None)
    return "+".join([*([str(whole)] if whole else []), f"{number} shares"])


def number(spec: GpuJobSpec) -> int:
    """Return the whole GPUs of all workers that start together; a share counts as one."""
    if spec.roles:
        return sum(role.workers * (role.gpus or 1) for role in spec.roles)
    return spec.least * (spec.gpus or 1)


def phrase(spec: GpuJobSpec, *, workers: int | None = None) -> str:
    """Return the number for a sentence: `8 GPUs`, `40% of a GPU`."""
    number = column(spec, workers=workers)
    if spec.roles:
        parts = number.split("+")
        return " and ".join(f"{each} of a GPU" if "%" in each else _counted(each) for each in parts)
    if spec.share is not None:
        return f"{number} of a GPU"
    if spec.mig is not None:
        slices, _, profile = number.partition("x")
        return f"{slices} MIG slice{'' if slices == '1' else 's'} {profile}"
    return _counted(number)


def _counted(number: str) -> str:
    """Return a number of GPUs, or of shares, as words."""
    if number.endswith("shares"):
        return f"{number} of GPUs"
    return "1 GPU" if number == "1" else f"{number} GPUs"
