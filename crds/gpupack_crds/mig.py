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
    """Wanted MIG layout of a GPU."""

    gpu: Annotated[str, described("UUID of a GPU in MIG mode.", min_length=1, max_length=MAX_UUID)]
    profiles: Annotated[
        tuple[Profile, ...],
        described(
            "Profiles of the slices, in any order; NVIDIA's rules decide their positions. Empty: "
            "the GPU has no slices and gets no work.",
            max_length=MAX_SLICES,
        ),
    ]


class MigGpu(Wire, frozen=True):
    """A GPU in MIG mode, or with a wanted layout."""

    gpu: Annotated[str, described("UUID of the GPU.", min_length=1, max_length=MAX_UUID)]
    profiles: Annotated[
        tuple[Profile, ...],
        described(
            "Profiles that the GPU supports. Empty: it is not in MIG mode.", max_length=MAX_PROFILES
        ),
    ] = ()
    changing: Annotated[
        bool,
        described(
            "True: the GPU is repartitioned as soon as no pod holds its slices. Until then they "
            "get no new work."
        ),
    ] = False
    message: Annotated[
        str,
        described("What the layout waits for, or why it is impossible.", max_length=256),
    ] = ""
