# SPDX-License-Identifier: Apache-2.0
"""MIG layouts of GPUs, in the spec and the status of a GPUNode."""

from typing import Annotated, Final

from gpupack_crds.devices import MAX_UUID
from gpupack_crds.names import MIG_PROFILE
from gpupack_crds.wire import Wire, described

MAX_SLICES: Final = 16
"""Maximum slices of one GPU; there are eight memory slots, and a slice takes at least one."""

MAX_PROFILES: Final = 32
"""Maximum profiles of one GPU; NVML knows 18."""

Profile = Annotated[
    str,
    described(
        "A profile, as nvidia-smi has it: 1g.18gb.",
        max_length=32,
        pattern=MIG_PROFILE,
    ),
]


class MigLayout(Wire, frozen=True):
    """What a GPU is to be cut into."""

    gpu: Annotated[str, described("UUID of a GPU in MIG mode.", min_length=1, max_length=MAX_UUID)]
    profiles: Annotated[
        tuple[Profile, ...],
        described(
            "One for each slice, in any order; they are placed by NVIDIA's rules. Empty: the GPU "
            "is not cut, and nobody gets it.",
            max_length=MAX_SLICES,
        ),
    ]


class MigGpu(Wire, frozen=True):
    """A GPU in MIG mode, or one of which a layout is wanted."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    profiles: Annotated[
        tuple[Profile, ...],
        described(
            "What it can be cut into; empty: it is not in MIG mode.", max_length=MAX_PROFILES
        ),
    ] = ()
    changing: Annotated[
        bool,
        described(
            "True: it is to be cut anew as soon as nobody holds its slices; they get no new work."
        ),
    ] = False
    message: Annotated[
        str,
        described("What its wanted layout waits for, or why it cannot be.", max_length=256),
    ] = ""
