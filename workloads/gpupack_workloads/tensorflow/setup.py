# SPDX-License-Identifier: Apache-2.0
"""Settings of TensorFlow, from the arguments and from gpupack's environment of the container.

The settings are those of the Python API (`gpupack.process_setup`), as programs of users have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gpupack.errors import ConfigInvalid
from gpupack.process_setup import (
    TensorFlowSettings,
    TensorFlowSetup,
    Visible,
    place_of,
    tensorflow_settings,
)
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.tensorflow.options import TensorFlowOptions

SHARE_FRACTION = 0.8
"""Of a share's memory: CUDA's context, cuDNN and NCCL count against it, too, and are no tensors."""
WHOLE = "exclusive"
MEMORY = "GPUPACK_DEVICE_MEMORY_MIB"
MAX_DIGITS = 12

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
"""Only errors are logged: warnings are about missing CPU instructions and duplicate libraries."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings that a process applies before it computes.

    Attributes:
        requested: without the GPUs, which TensorFlow counts.
        given: GPUs that the container was given, simulated ones too; 0: not known.
        memory_mib: MiB of each GPU, or of the share of it; 0: not known.
        fraction: of that, for TensorFlow; None: no limit.
        collectives: between workers, of tf.distribute's CommunicationImplementation.
    """

    requested: TensorFlowSetup
    given: int = 0
    memory_mib: int = 0
    fraction: float | None = None
    collectives: str = "AUTO"

    @property
    def environment(self) -> dict[str, str]:
        """To be set before TensorFlow is imported.

        CUDA_VISIBLE_DEVICES stays, because the container or the caller chooses the GPUs.
        """
        settings = self.settings(0).environment
        return QUIET | {name: value for name, value in settings.items() if name.startswith("TF_")}

    @property
    def workers(self) -> int:
        """How many there are."""
        return max(len(self.requested.workers), 1)

    @property
    def index(self) -> int:
        """Which of the workers this is."""
        return self.requested.task_index

    @property
    def peers(self) -> tuple[str, ...]:
        """Host names of the other workers."""
        hosts = [address.rpartition(":")[0] for address in self.requested.workers]
        return tuple(host for index, host in enumerate(hosts) if index != self.index)

    @property
    def memory_limit_mib(self) -> int:
        """Of a GPU, for TensorFlow; 0: no limit."""
        return sum(self.settings(1).memory_limit_mib)

    def settings(self, gpus: int) -> TensorFlowSettings:
        """Return what to apply where TensorFlow sees so many GPUs."""
        devices = tuple(str(index) for index in range(gpus))
        setup = msgspec.structs.replace(
            self.requested, devices=devices, gpu_memory_fraction=self.fraction
        )
        return tensorflow_settings(
            setup, tuple(Visible(each, memory_mib=self.memory_mib) for each in devices)
        )


def setup_for(options: TensorFlowOptions, environ: Mapping[str, str]) -> Setup:
    """Work out what a worker sets.

    Raises:
        BadArgument: TF_CONFIG or the gang's variables are not valid, or a fraction of memory is
            requested whose size is not known.
    """
    try:
        place = place_of(environ)
        requested = TensorFlowSetup(
            allow_growth=options.memory_growth,
            strategy="multi_worker" if place.workers else "mirrored",
            workers=place.workers,
            task_index=place.index,
        )
        tensorflow_settings(requested)
    except ConfigInvalid as error:
        raise BadArgument(str(error)) from error
    memory_mib, fraction = _memory_mib(environ), options.memory_fraction
    if fraction is not None and not memory_mib:
        raise BadArgument(
            f"--memory-fraction {fraction}: of how much GPU memory? {MEMORY} tells it to a pod"
            " that gpupack has placed; set it, in MiB, or leave the argument out"
        )
    if fraction is None and environ.get("GPUPACK_DEVICE_ISOLATION", WHOLE) != WHOLE:
        fraction = SHARE_FRACTION
    return Setup(
        requested=requested,
        given=len([each for each in environ.get("GPUPACK_DEVICES", "").split(",") if each]),
        memory_mib=memory_mib,
        fraction=fraction if memory_mib else None,
        # Several shares may be on one GPU, where NCCL refuses a second rank.
        collectives="RING" if environ.get("GPUPACK_BACKEND") == "gloo" else "AUTO",
    )


def _memory_mib(environ: Mapping[str, str]) -> int:
    text = environ.get(MEMORY) or "0"
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise BadArgument(f"{MEMORY} is {text!r}, not a whole number of MiB")
    return int(text)
