# SPDX-License-Identifier: Apache-2.0
"""Checks attention over packed sequences in 64 bits, times it against others', and reports.

Before anything is timed the first and the last sequence are compared element by element, in two
heads; afterwards all heads of all sequences, as the last turns left them, by a projection.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch._functorch import config as functorch_config

from gpupack_kernels.loading import load
from gpupack_workloads.attention.checks import (
    Attention,
    CheckSpec,
    Inputs,
    Verdict,
    check_timed,
    judge,
    random_inputs,
)
from gpupack_workloads.attention.lengths import RaggedPlan, ragged_plan_for
from gpupack_workloads.attention.options import VARLEN, AttentionOptions
from gpupack_workloads.attention.packed import Packed, packed_rivals
from gpupack_workloads.attention.session import MASKS, OURS, Seconds, summarise, times
from gpupack_workloads.devices import Device, choose_device, memory_errors
from gpupack_workloads.memory import require_memory
from gpupack_workloads.results import Result

logger = logging.getLogger(__name__)

Results = tuple[torch.Tensor, ...]

# No multiple of any tile, and an empty one; with shared heads.
EDGES, EDGE_HEADS = (1, 130, 0, 33), (4, 2)
CPU_EDGES, CPU_EDGE_HEADS = (5, 0, 20), (2, 1)


def run(options: AttentionOptions) -> Result:
    """Check and time attention over packed sequences, full and causal.

    Raises:
        OutOfMemory: the problem does not fit.
        WrongResult: something is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = ragged_plan_for(device, options)
    doing = f"attention over {len(plan.lengths)} sequences of {plan.tokens} tokens"
    require_memory(
        device, doing=doing, on_device=plan.needed_bytes, smaller="--size, --batch or --heads"
    )
    kernel = load("attention_varlen.ops", "attention_varlen")
    verdicts: dict[str, Verdict] = {}
    seconds: dict[str, Seconds] = {}
    # By default flex's compiled backward releases its graph's memory and runs only once.
    with memory_errors(doing), functorch_config.patch(donated_buffer=False):
        check_edges(kernel, device, plan, seed=options.seed)
        packed = Packed(plan.lengths, device.torch)
        ours = over(kernel, packed)
        inputs = inputs_for(packed, (plan.heads, plan.kv_heads), device, plan, seed=options.seed)
        for mask, causal in MASKS.items():
            first = check(ours, packed, inputs, causal=causal)
            logger.info("%s: verified", mask)
            rivals = packed_rivals(packed, inputs, causal=causal)
            took, left = times({OURS: ours} | rivals, inputs, device, plan, mask=mask)
            seconds |= took
            for each, results in parts_of(packed, inputs, left):
                first = first.merge(check_timed(each, results, causal=causal, seed=options.seed))
            logger.info("%s: verified as it was timed", mask)
            verdicts[mask] = first
    return summarise(device, plan, verdicts=verdicts, seconds=seconds, layout=VARLEN)


def over(kernel: Any, packed: Packed) -> Attention:
    """Return our function over these sequences."""
    attention: Attention = partial(kernel, cu_seqlens_q=packed.offsets, cu_seqlens_k=packed.offsets)
    return attention


def inputs_for(
    packed: Packed, heads: tuple[int, int], device: Device, plan: RaggedPlan, *, seed: int
) -> Inputs:
    """Return Q, K, V and dO of all tokens, with so many heads of queries and of keys."""
    tokens = sum(packed.lengths)
    return random_inputs(
        (tokens, heads[0], plan.dimension),
        (tokens, heads[1], plan.dimension),
        device=device.torch,
        dtype=plan.dtype,
        seed=seed,
    )


def check_edges(kernel: Any, device: Device, plan: RaggedPlan, *, seed: int) -> None:
    """Check a small pack whose lengths are no multiple of any tile, and shared heads."""
    packed = Packed(CPU_EDGES if device.simulated else EDGES, device.torch)
    heads = CPU_EDGE_HEADS if device.simulated else EDGE_HEADS
    inputs = inputs_for(packed, heads, device, plan, seed=seed)
    for causal in MASKS.values():
        check(over(kernel, packed), packed, inputs, causal=causal)


def check(attention: Attention, packed: Packed, inputs: Inputs, *, causal: bool) -> Verdict:
    """Compute forward and backward, and compare two heads of the first and the last sequence.

    Raises:
        WrongResult: an element differs by more than rounding explains.
    """
    o = attention(*inputs.qkv, causal=causal)
    left = (o.detach(), *torch.autograd.grad(o, inputs.qkv, inputs.do))
    question = CheckSpec(causal=causal)
    places = sorted({(0, 0), (0, inputs.k.shape[1] - 1)})
    parts = parts_of(packed, inputs, left)
    first, last = (judge(*part, question, places=places) for part in (parts[0], parts[-1]))
    return first.merge(last)


def parts_of(packed: Packed, inputs: Inputs, results: Results) -> Sequence[tuple[Inputs, Results]]:
    """Return each non-empty sequence as a separate problem with a batch of one."""

    def alone(x: torch.Tensor, where: slice) -> torch.Tensor:
        return x[where].transpose(0, 1)[None]

    return [
        (
            Inputs(**{name: alone(x.detach(), where) for name, x in vars(inputs).items()}),
            tuple(alone(x, where) for x in results),
        )
        for where, length in zip(packed.slices, packed.lengths, strict=True)
        if length
    ]
