# SPDX-License-Identifier: Apache-2.0
"""Number formats of a step. Parameters and their updates stay in 32 bits.

fp32 means all 32 bits: torch would let cuDNN cut convolutions to TF32 otherwise.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
TF32 = "tf32"


@dataclass(frozen=True)
class Precision:
    """One of bf16, fp16, tf32, fp32.

    Attributes:
        name: which.
        scaled: whether to scale the loss if the format needs it; False shows the effect.
    """

    name: str
    scaled: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """The type that data should have."""
        return AUTOCAST.get(self.name, torch.float32)

    @property
    def needs_scaling(self) -> bool:
        """Whether small gradients would vanish unless the loss is scaled up."""
        return self.scaled and self.name == "fp16"

    @contextlib.contextmanager
    def computing(self, device: torch.device) -> Iterator[None]:
        """Compute in this format for as long as the context lasts."""
        with (
            tf32(allowed=self.name == TF32),
            torch.autocast(device.type, dtype=self.dtype, enabled=self.name in AUTOCAST),
        ):
            yield


@contextlib.contextmanager
def tf32(*, allowed: bool) -> Iterator[None]:
    """Let 32-bit products be cut to TF32, or not; on a CPU nothing changes."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
