# SPDX-License-Identifier: Apache-2.0
"""Sizes of the training for a kind of device and a number of ranks."""

from dataclasses import dataclass

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.transformer.options import TransformerOptions

HEAD_WIDTHS = (64, 128)
MULTIPLE = 16
# Logits of so many tokens, as 32-bit numbers and their gradients, take some 10 GB.
MICRO_BATCH_TOKENS = 24576
# In these ways ranks compute different rows.
SHARING = ("ddp", "fsdp")
VOCABULARY = {"cuda": 32768, "cpu": 256}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The network's sizes."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    sequence: int

    @property
    def head_width(self) -> int:
        """Numbers per head."""
        return self.width // self.heads

    @property
    def block_weights(self) -> int:
        """Numbers in the matrices of one block."""
        attention = 2 * self.width * self.head_width * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.inner


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run with every default filled in. `parts` are micro-batches of a rank's share."""

    shape: Shape
    batch_size: int
    steps: int
    check_steps: int
    parts: int
    dtype: str
    recompute: bool
    kernels: str
    parallel: str
    compiled: bool
    seed: int
    learning_rate: float


def plan_for(options: TransformerOptions, *, ranks: int, simulated: bool) -> Plan:
    """Fill in what suits the device.

    Raises:
        BadArgument: the ranks cannot share this network or this batch evenly.
    """
    shape = shape_for(options, simulated=simulated)
    check_shape(shape)
    dtype = options.dtype or ("fp32" if simulated else "bf16")
    if simulated and dtype != "fp32":
        raise BadArgument("without a GPU transformer computes in fp32 only")
    batch_size = given(options.batch_size, 6 if simulated else 24)
    check_sharing(shape, options.parallel, ranks)
    return Plan(
        shape=shape,
        batch_size=batch_size,
        steps=given(options.steps, 2 if simulated else 10),
        check_steps=given(options.check_steps, 3 if simulated else 4),
        parts=parts_for(options, shape, batch_size, ranks),
        dtype=dtype,
        recompute=options.recompute,
        kernels=options.kernels,
        parallel=options.parallel,
        compiled=not simulated if options.compiled is None else options.compiled,
        seed=options.seed,
        learning_rate=3e-3 if simulated else 3e-4,
    )


def shape_for(options: TransformerOptions, *, simulated: bool) -> Shape:
    """Return the network's sizes."""
    width = given(options.width, 128 if simulated else 2048)
    # Three matrices instead of two of 4 x width: as many weights with 8/3; rounded up to 256.
    inner = -(-8 * width // 3 // 256) * 256
    return Shape(
        layers=given(options.layers, 2 if simulated else 12),
        width=width,
        heads=given(options.heads, 2 if simulated else 16),
        kv_heads=given(options.kv_heads, 2 if simulated else 4),
        inner=inner,
        vocabulary=VOCABULARY["cpu" if simulated else "cuda"],
        sequence=given(options.sequence, 16 if simulated else 4096),
    )


def given(value: int | None, default: int) -> int:
    """Return the requested value, else the default."""
    return default if value is None else value


def check_shape(shape: Shape) -> None:
    """Refuse sizes that no kernel takes."""
    if shape.width % shape.heads or shape.head_width not in HEAD_WIDTHS:
        raise BadArgument(
            f"a width of {shape.width} over {shape.heads} heads is not 64 or 128 numbers each"
        )
    if shape.heads % shape.kv_heads:
        raise BadArgument(f"{shape.kv_heads} key heads do not divide {shape.heads} heads")
    if shape.sequence % MULTIPLE:
        raise BadArgument(f"a sequence of {shape.sequence} tokens is no multiple of {MULTIPLE}")


def check_sharing(shape: Shape, parallel: str, ranks: int) -> None:
    """Refuse ranks that cannot share the network."""
    if parallel == "tp" and (shape.kv_heads % ranks or shape.inner % ranks):
        raise BadArgument(f"{ranks} ranks cannot share {shape.kv_heads} key heads evenly")
    if parallel == "pp" and shape.layers < ranks:
        raise BadArgument(f"{shape.layers} layers are too few for a pipeline of {ranks} stages")


def parts_for(options: TransformerOptions, shape: Shape, batch_size: int, ranks: int) -> int:
    """Return into how many micro-batches a rank's share is cut.

    By default, into the fewest that are small enough for memory. A pipeline is filled by two
    micro-batches per stage at least, where the batch has so many.

    Raises:
        BadArgument: the batch cannot be shared evenly.
    """
    sharing_ranks = ranks if options.parallel in SHARING else 1
    least = options.accumulate or 1
    if batch_size % (sharing_ranks * least):
        raise BadArgument(
            f"a batch of {batch_size} rows cannot be shared evenly by {sharing_ranks} ranks in"
            f" {least} part(s)"
        )
    share = batch_size // sharing_ranks
    if options.accumulate is None:
        least = -(-share * shape.sequence // MICRO_BATCH_TOKENS)
    if options.parallel == "pp":
        least = max(least, 2 * ranks)
    fitting = (parts for parts in range(least, share) if share % parts == 0)
    return next(fitting, share)


def flops_per_token(shape: Shape) -> int:
    """Return floating-point operations per token of a step, for the share of a device's peak.

    As MFU counts them (Chowdhery et al., 2022): 6 for every weight in a product (2 forward, 4 for
    both gradients), and for causal attention 6 x layers x width x sequence (two products of 2 x
    width x sequence per layer, three times that with gradients, half of it masked). Embeddings are
    looked up, not multiplied. Recomputed activations do not count.
    """
    weights = shape.layers * shape.block_weights + shape.width * shape.vocabulary
    return 6 * weights + 6 * shape.layers * shape.width * shape.sequence
