# SPDX-License-Identifier: Apache-2.0
"""Options of `transformer`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.settings import Options

KERNELS = ("ours", "all", "torch")
"""`all` are ours too: norms, rotations, gates and the loss, besides what `ours` are."""
PARALLEL = ("ddp", "fsdp", "tp", "pp")
DTYPES = ("bf16", "fp32")
MAX_CHECK_STEPS = 8
"""With more steps rounding alone leads further apart than the bounds of the comparison."""


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(Options):
    """Arguments; None: defaults for the device.

    Attributes:
        layers: blocks of attention and a feed-forward part.
        width: numbers per token between the blocks.
        heads: number of heads of the queries; width over heads is 64 or 128.
        kv_heads: number of heads of keys and values, shared by heads.
        sequence: tokens in a row.
        batch_size: rows per step, of all ranks together.
        steps: number of training steps, counted from the first attempt on.
        accumulate: parts of each rank's share, one after the other.
        dtype: type of products and activations; parameters are fp32.
        recompute: keep only the inputs of blocks and compute them again for the gradient.
        compiled: whether torch's operations between products are compiled.
        kernels: implementation of attention, softmax and products, or of all.
        parallel: how the ranks share the work.
        check_steps: compared with a single process; 0 compares nothing and verifies nothing.
        checkpoint: folder of checkpoints; the latest in it is taken up.
        checkpoint_every: steps.
        attempt: attempt of the job; new checkpoints have at least this number.
        saved_marks: a folder of the launcher, in which processes say that they have saved.
    """

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    sequence: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    accumulate: int | None = None
    dtype: str | None = None
    recompute: bool = False
    compiled: bool | None = None
    kernels: str = "ours"
    parallel: str = "ddp"
    check_steps: int | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    attempt: int = 1
    saved_marks: Path | None = None


def attempt_of(environ: Mapping[str, str]) -> int:
    """Return the number of this attempt of the job, from 1.

    Raises:
        BadArgument: the operator's variable is not a number.
    """
    text = environ.get("GPUPACK_ATTEMPT") or "1"
    if not text.isdecimal():
        raise BadArgument(f"GPUPACK_ATTEMPT is {text!r}, not a whole number")
    return int(text)
