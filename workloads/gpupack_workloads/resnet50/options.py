# SPDX-License-Identifier: Apache-2.0
"""Options of `resnet50`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

DTYPES = ("bf16", "fp16", "tf32", "fp32")
NO_COMPILER = "off"
FLAT, DDP = COUPLINGS = ("flat", "ddp")
COMPILE_MODES = (NO_COMPILER, "default", "reduce-overhead", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, kw_only=True)
class ResNetOptions(Options):
    """Arguments; None: defaults for the device. `size` is an image's edge in pixels.

    Attributes:
        batch_size: images per process and step.
        steps: how many are timed.
        dtype: in which the network computes; parameters are always fp32.
        channels_last: whether a pixel's channels are contiguous in memory, as tensor cores require.
        compile_mode: torch.compile's mode, or off.
        coupling: how ranks sum gradients: by our flat buffers or by torch's DDP.
        bucket_mib: gradients that are summed in one all-reduce.
    """

    batch_size: int | None = None
    steps: int | None = None
    dtype: str | None = None
    channels_last: bool = True
    compile_mode: str | None = None
    coupling: str = FLAT
    bucket_mib: int = 50
