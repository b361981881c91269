# SPDX-License-Identifier: Apache-2.0
"""A language model's other kernels, forward and backward, against torch, torch.compile and Liger.

here      options of the command line (no torch)
cases     each kernel's operands, its rivals, and what is checked of it
session   checks and times each, and makes the result
"""

import importlib
from dataclasses import dataclass
from typing import Any

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options

KERNELS = ("rms_norm", "rotary", "swiglu", "linear_cross_entropy")
DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, kw_only=True)
class LlmOptions(Options):
    """Options of `llm-kernels`; None: defaults for the device. `size` counts tokens.

    Attributes:
        kernel: the one to measure; None takes all.
        hidden: numbers per token, of norms and before the head.
        heads: number of heads of the queries.
        kv_heads: number of heads of the keys.
        head: numbers of a head, even.
        intermediate: numbers per token within the gated part.
        vocabulary: words.
        dtype: type of all operands.
    """

    kernel: str | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes with every default filled in; see `LlmOptions`."""

    tokens: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocabulary: int
    dtype: str


# Those of Llama 3 8B; and what the interpreter computes in seconds.
GPU_SIZES = Sizes(
    tokens=8192, hidden=4096, heads=32, kv_heads=8, head=128, intermediate=14336,
    vocabulary=128256, dtype="bfloat16",
)  # fmt: skip
CPU_SIZES = Sizes(
    tokens=48, hidden=96, heads=4, kv_heads=2, head=48, intermediate=200, vocabulary=500,
    dtype="float32",
)  # fmt: skip


def sizes_for(options: LlmOptions, *, simulated: bool) -> Sizes:
    """Fill in what suits the device.

    Raises:
        BadArgument: heads cannot be halved, or a type needs a GPU.
    """
    usual = CPU_SIZES if simulated else GPU_SIZES
    given = {
        name: getattr(options, name)
        for name in Sizes.__dataclass_fields__
        if name != "tokens" and getattr(options, name) is not None
    }
    tokens = usual.tokens if options.size is None else options.size
    sizes = Sizes(**(vars(usual) | given | {"tokens": tokens}))
    if sizes.head % 2:
        raise BadArgument(f"--head {sizes.head} is odd: the numbers of a head are turned in pairs")
    if simulated and sizes.dtype == "bfloat16":
        raise BadArgument("--dtype bfloat16 needs a GPU: Triton's interpreter computes it wrongly")
    return sizes


def run(options: LlmOptions) -> Result:
    """Check and time the kernels; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.llm_kernels.session")
    result: Result = session.run(options)
    return result
