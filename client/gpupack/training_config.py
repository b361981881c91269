# SPDX-License-Identifier: Apache-2.0
"""The GPU request of a training."""

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from gpupack.errors import ConfigInvalid
from gpupack_placement import Invalid, require_model

MAX_GPUS: Final = 4096
MAX_MEMORY_GB: Final = 100_000
BYTES_PER_GB: Final = 10**9
BYTES_PER_MIB: Final = 1 << 20
PERCENT: Final = 100


def gigabytes(mebibytes: int) -> float:
    """Return GB of 10^9 bytes, to three digits: with fewer, MiB could not be restored."""
    return round(mebibytes * BYTES_PER_MIB / BYTES_PER_GB, 3)


@dataclass(slots=True)
class TrainingGPUConfig:
    """GPUs of a training, and how it uses them.

    Attributes:
        gpu_count: GPUs of all its workers together.
        gpu_type: model in the form that users write: V100, A100-80GB; empty: any.
        memory_gb: GB of 10^9 bytes. For whole GPUs: minimum memory of each. For a share: memory
            that is held of the GPU.
        distributed_training: it may run as several processes, in a cluster on several nodes.
        mixed_precision: frameworks compute with bfloat16 or float16 where the GPU supports it.
        gpu_memory_fraction: maximum part of the GPU's (or the share's) memory for a process.
        compute_ratio: below 1 a share: the part of one GPU's time.

    Raises:
        ConfigInvalid: a field has an invalid value.
    """

    gpu_count: int = 1
    gpu_type: str = ""
    memory_gb: float = 0.0
    distributed_training: bool = False
    mixed_precision: bool = False
    gpu_memory_fraction: float = 0.9
    compute_ratio: float = 1.0

    def __post_init__(self) -> None:
        self.check()

    @property
    def is_share(self) -> bool:
        """Whether the request is for a part of one GPU."""
        return self.compute_ratio < 1

    @property
    def memory_mib(self) -> int:
        """`memory_gb` in MiB, rounded up."""
        return math.ceil(self.memory_gb * BYTES_PER_GB / BYTES_PER_MIB)

    @property
    def percent(self) -> int:
        """Percent of one GPU's time; 100: whole GPUs."""
        return round(self.compute_ratio * PERCENT)

    def check(self) -> None:
        """Check every field again, since fields can be set.

        Raises:
            ConfigInvalid: names the first wrong field.
        """
        self._number("gpu_count", minimum=1, maximum=MAX_GPUS, whole=True)
        self._number("memory_gb", minimum=0, maximum=MAX_MEMORY_GB)
        self._number("gpu_memory_fraction", minimum=0.01, maximum=1)
        self._number("compute_ratio", minimum=0.01, maximum=1)
        for name in ("distributed_training", "mixed_precision"):
            if not isinstance(getattr(self, name), bool):
                raise self._invalid(name, "give True or False")
        self._check_model()
        if self.is_share and self.gpu_count != 1:
            raise self._invalid("gpu_count", "a share (compute_ratio below 1) is of 1 GPU")
        if self.is_share and self.distributed_training:
            raise self._invalid("distributed_training", "give False: a share is of one process")
        if self.is_share and not self.memory_gb:
            raise self._invalid("memory_gb", "a share needs a memory of more than 0")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields with their values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check_model(self) -> None:
        if self.gpu_type is None:
            self.gpu_type = ""
        if not isinstance(self.gpu_type, str):
            raise self._invalid("gpu_type", "name a model such as V100, or leave it empty for any")
        if self.gpu_type:
            try:
                require_model(self.gpu_type)
            except Invalid as error:
                raise self._invalid("gpu_type", f"name a model such as V100 ({error})") from error

    def _number(self, name: str, *, minimum: float, maximum: float, whole: bool = False) -> None:
        value = getattr(self, name)
        kinds = (int,) if whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if not is_number or not minimum <= value <= maximum:
            what = "a whole number" if whole else "a number"
            raise self._invalid(name, f"give {what} from {minimum} to {maximum}")

    def _invalid(self, name: str, fix: str) -> ConfigInvalid:
        return ConfigInvalid(f"TrainingGPUConfig.{name}: {getattr(self, name)!r}; {fix}")
