# SPDX-License-Identifier: Apache-2.0
"""Computes the same attention by torch: cuDNN's kernels, FlashAttention's, or plain on a CPU."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpupack_workloads.attention.checks import Attention, Inputs

logger = logging.getLogger(__name__)

Work = Callable[[], tuple[torch.Tensor, ...]]

GPU_BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}
CPU_BACKENDS = {"torch": SDPBackend.MATH}


def torch_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, backend: SDPBackend
) -> torch.Tensor:
    """Return torch's attention by one of its implementations."""
    with sdpa_kernel(backend):
        o: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )
    return o


def rivals_for(inputs: Inputs, *, causal: bool) -> dict[str, Attention]:
    """Return the implementations that take this problem."""
    backends = GPU_BACKENDS if inputs.q.is_cuda else CPU_BACKENDS
    rivals: dict[str, Attention] = {}
    for name, backend in backends.items():
        rival = partial(torch_attention, backend=backend)
        try:
            torch.autograd.grad(rival(*inputs.qkv, causal=causal), inputs.qkv, inputs.do)
        except RuntimeError as error:
            logger.warning("%s does not take this problem: %s", name, str(error).split("\n")[0])
        else:
            rivals[name] = rival
    return rivals


def forward_of(attention: Attention, inputs: Inputs, *, causal: bool) -> Work:
    """Return a forward pass to time, which leaves O."""

    def work() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return (attention(*inputs.qkv, causal=causal),)

    return work


def backward_of(attention: Attention, inputs: Inputs, *, causal: bool) -> Work:
    """Return a backward pass to time, which leaves dQ, dK and dV."""
    o = attention(*inputs.qkv, causal=causal)
    return lambda: torch.autograd.grad(o, inputs.qkv, inputs.do, retain_graph=True)
