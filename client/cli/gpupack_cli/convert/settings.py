# SPDX-License-Identifier: Apache-2.0
"""What the user states about a conversion, because no manifest contains it."""

import dataclasses

from gpupack_kubeclient.objects import Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a conversion.

    Attributes:
        gpu_memory_mib: memory of one GPU; 0: unknown, and a percentage of it cannot be converted.
        keep_resource: GPUs stay those of the present device plugin (resourceName), instead of
            gpupack's own.
        image: image of the containers of scripts; empty: the script must name one.
        runtimes: Kubeflow Trainer's runtimes in the same input, by name.
    """

    gpu_memory_mib: int = 0
    keep_resource: bool = False
    image: str = ""
    runtimes: dict[str, Json] = dataclasses.field(default_factory=dict)
