# SPDX-License-Identifier: Apache-2.0
"""Sizes with every default filled in, and how many pages of the cache the share's memory holds.

Of a share's memory the weights come first, then the workspace of steps, then what CUDA itself
has of each process; the cache is the rest, but no more pages than `max_batch` of the longest
sequences could hold. GPUPACK_DEVICE_MEMORY_MIB has the container's share. torch is limited to
it as well: a wrong estimate here hits this server alone, and not its neighbours.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, OutOfMemory
from gpupack_workloads.inference_server.options import (
    GATHERED,
    PAGE_TOKENS,
    PAGED,
    ServingOptions,
)
from gpupack_workloads.inference_server.pages import pages_for
from gpupack_workloads.memory import MIB, free_bytes
from gpupack_workloads.transformer.memory_estimate import ELEMENT_BYTES, FLOAT_BYTES, parameters
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.plan import Shape, check_shape, given, shape_for

# For the context, cuBLAS and kernels, which are no tensors but count as the process's. An estimate.
CUDA_BYTES = 1024 * MIB
# Without a GPU the CPU computes: its memory is the host's, and other processes use it too.
MAX_CPU_BYTES = 512 * MIB


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes that decide a server's memory.

    Attributes:
        shape: shape of the network; its `sequence` is the longest prompt and answer together.
        dtype: bf16 or fp32, of weights, cache and products.
        max_batch: sequences that compute at a time.
        max_waiting: requests that wait.
        prefill_tokens: maximum number of tokens of prompts in a step.
        graphs: whether steps of one token are CUDA graphs.
        paged: whether they read pages in place.
        pages: number of pages of the cache.
        budget_bytes: what all of it is to keep within.
    """

    shape: Shape
    dtype: str
    max_batch: int
    max_waiting: int
    prefill_tokens: int
    graphs: bool
    paged: bool
    pages: int
    budget_bytes: int


def sizes_for(options: ServingOptions, device: Device) -> Sizes:
    """Fill in what suits the device, and cut the cache from the share.

    Raises:
        BadArgument: there is no such network.
        OutOfMemory: not even one sequence of the longest kind fits.
    """
    simulated = device.simulated
    length = given(options.max_length, 256 if simulated else 2048)
    shape = shape_for(
        TransformerOptions(
            layers=options.layers,
            width=options.width,
            heads=options.heads,
            kv_heads=options.kv_heads,
            sequence=length,
        ),
        simulated=simulated,
    )
    check_shape(shape)
    if options.graphs and simulated:
        raise BadArgument("--graphs needs a GPU")
    max_batch = given(options.max_batch, 8 if simulated else 32)
    prefill = given(options.prefill_tokens, 64 if simulated else 512)
    dtype = "fp32" if simulated else "bf16"
    budget = budget_bytes(options, device, os.environ)
    return Sizes(
        shape=shape,
        dtype=dtype,
        max_batch=max_batch,
        max_waiting=options.max_waiting,
        prefill_tokens=prefill,
        graphs=not simulated if options.graphs is None else options.graphs,
        paged=(options.attention or (GATHERED if simulated else PAGED)) == PAGED,
        pages=pages_within(
            budget - (0 if simulated else CUDA_BYTES),
            shape=shape,
            dtype=dtype,
            max_batch=max_batch,
            prefill_tokens=prefill,
        ),
        budget_bytes=budget,
    )


def budget_bytes(options: ServingOptions, device: Device, environ: Mapping[str, str]) -> int:
    """Return the bytes a server may use: the option, else its share, at most what is free."""
    limit_mib = options.memory_mib or share_mib(environ)
    free = free_bytes(device)
    if device.simulated:
        free = min(free // 2, MAX_CPU_BYTES)
    return min(limit_mib * MIB, free) if limit_mib else free


def share_mib(environ: Mapping[str, str]) -> int | None:
    """Return the memory of this container's share of its GPU, if the environment has it.

    Raises:
        BadArgument: the variable is not a number.
    """
    text = environ.get("GPUPACK_DEVICE_MEMORY_MIB")
    if not text:
        return None
    if not text.isdecimal():
        raise BadArgument(f"GPUPACK_DEVICE_MEMORY_MIB is {text!r}, not a whole number of MiB")
    return int(text)


def hold_to(budget: int, device: Device) -> None:
    """Let torch allocate no more than this."""
    if device.simulated:
        return
    total = torch.cuda.get_device_properties(device.torch).total_memory
    tensors = max(0, budget - CUDA_BYTES)
    torch.cuda.set_per_process_memory_fraction(min(1.0, tensors / total), device.torch)


def pages_within(
    available: int, *, shape: Shape, dtype: str, max_batch: int, prefill_tokens: int
) -> int:
    """Return how many pages fit next to weights and workspace.

    Raises:
        OutOfMemory: fewer than one sequence needs.
    """
    one = pages_for(shape.sequence, PAGE_TOKENS)
    page = page_bytes(shape, dtype)
    rest = available - ELEMENT_BYTES[dtype] * parameters(shape)
    rest -= workspace_bytes(shape, dtype, max_batch, prefill_tokens)
    if available < FLOAT_BYTES * parameters(shape):
        rest = 0  # weights are made in 32 bits, before the cache is there
    fitting = rest // page - 1  # the spare one
    if fitting < one:
        raise OutOfMemory(
            f"a sequence of {shape.sequence} tokens needs {one * page // MIB + 1} MiB of cache, and"
            f" of {available // MIB} MiB {max(0, rest) // MIB} are left after weights and"
            " workspace: request a larger share, or set a smaller --max-length, --max-batch,"
            " --layers or --width"
        )
    return min(fitting, one * max_batch)


def page_bytes(shape: Shape, dtype: str) -> int:
    """Return bytes of a page: keys and values of all layers."""
    numbers = 2 * shape.layers * PAGE_TOKENS * shape.kv_heads * shape.head_width
    return ELEMENT_BYTES[dtype] * numbers


def workspace_bytes(shape: Shape, dtype: str, max_batch: int, prefill_tokens: int) -> int:
    """Estimate the memory that steps take in addition to weights and cache.

    Keys and values of a layer are gathered once for the step; the mask is a number for each token
    and position that it may see; the inner part has three tensors of its width; logits and noise
    of sampling are in 32 and 64 bits. Doubled, for what allocators and graphs keep.
    """
    element = ELEMENT_BYTES[dtype]
    tokens = max(max_batch, prefill_tokens)
    kv_width = shape.kv_heads * shape.head_width
    gathered = 2 * element * max_batch * shape.sequence * kv_width
    shared = shape.heads // shape.kv_heads
    mask = (1 + element) * tokens * shared * shape.sequence
    inner = element * tokens * (3 * shape.inner + 6 * shape.width)
    logits = max_batch * shape.vocabulary * (3 * 4 + 3 * 8)
    return 2 * (gathered + mask + inner + logits)
