# SPDX-License-Identifier: Apache-2.0
"""Compares attention and its gradient with the reference, head by head."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.agreement import Agreement, closest
from gpupack_workloads.kernels.attention.reference import Expected, Head, compare, expected

logger = logging.getLogger(__name__)


class Attention(Protocol):
    """Our function, or one that stands in for it."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Return O."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Q, K, V with their gradients wanted, and dO."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor

    @property
    def qkv(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return Q, K and V."""
        return self.q, self.k, self.v


@dataclass(frozen=True)
class Verdict:
    """The elements that came closest to their bounds."""

    forward: Agreement
    backward: Agreement


def random_inputs(
    q_shape: tuple[int, ...],
    kv_shape: tuple[int, ...],
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
) -> Inputs:
    """Return normal numbers; one seed gives one set per device."""
    chance = torch.Generator(device).manual_seed(seed)

    def draw(shape: tuple[int, ...], *, grad: bool) -> torch.Tensor:
        values = torch.randn(shape, generator=chance, device=device, dtype=torch.float32)
        return values.to(dtype).requires_grad_(grad)

    return Inputs(
        q=draw(q_shape, grad=True),
        k=draw(kv_shape, grad=True),
        v=draw(kv_shape, grad=True),
        do=draw(q_shape, grad=False),
    )


def check(attention: Attention, inputs: Inputs, *, causal: bool) -> Verdict:
    """Compute forward and backward, and compare the first and the last key head's share.

    Raises:
        WrongResult: an element differs by more than rounding explains.
    """
    o = attention(*inputs.qkv, causal=causal)
    gradients = torch.autograd.grad(o, inputs.qkv, inputs.do)
    batch, kv_heads = inputs.k.shape[:2]
    places = {(0, 0), (batch - 1, kv_heads - 1)}
    verdicts = [
        verdict_of(inputs, (o.detach(), *gradients), place=place, causal=causal)
        for place in sorted(places)
    ]
    forward = closest([verdict.forward for verdict in verdicts])
    backward = closest([verdict.backward for verdict in verdicts])
    for what, agreement in (("forward", forward), ("backward", backward)):
        if not agreement.holds:
            raise WrongResult(
                f"attention {what}, q {tuple(inputs.q.shape)}, k {tuple(inputs.k.shape)},"
                f" {inputs.q.dtype}, causal {causal}: wrong by {agreement.error:.3e}"
                f" where rounding explains {agreement.bound:.3e}"
            )
    return Verdict(forward, backward)


def verdict_of(
    inputs: Inputs, results: tuple[torch.Tensor, ...], *, place: tuple[int, int], causal: bool
) -> Verdict:
    """Compare what belongs to one key head: that head, and all query heads that share it."""
    o, dq, dk, dv = results
    batch, kv_head = place
    group = inputs.q.shape[1] // inputs.k.shape[1]
    heads = range(kv_head * group, (kv_head + 1) * group)
    dtype = str(inputs.q.dtype).removeprefix("torch.")
    wanted = [expected(head_of(inputs, batch, head, kv_head, causal=causal)) for head in heads]
    forward, backward = [], []
    for head, want in zip(heads, wanted, strict=True):
        forward.append(compare(o[batch, head], want.o, want.o_bound, dtype=dtype))
        backward.append(compare(dq[batch, head], want.dq, want.dq_bound, dtype=dtype))
    for gradient, name in ((dk, "dk"), (dv, "dv")):
        exact, bound = total(wanted, name), total(wanted, f"{name}_bound")
        backward.append(compare(gradient[batch, kv_head], exact, bound, dtype=dtype))
    return Verdict(closest(forward), closest(backward))


def total(wanted: Iterable[Expected], name: str) -> torch.Tensor:
    """Add up what query heads contribute to a key head's gradient, or the bounds of that."""
    parts: list[torch.Tensor] = [getattr(want, name) for want in wanted]
    return torch.stack(parts).sum(0)


def head_of(inputs: Inputs, batch: int, head: int, kv_head: int, *, causal: bool) -> Head:
    """Return one head's problem in 64 bits."""
    q, do = inputs.q[batch, head], inputs.do[batch, head]
    k, v = inputs.k[batch, kv_head], inputs.v[batch, kv_head]
    q64, k64, v64, do64 = (x.detach().double() for x in (q, k, v, do))
    return Head(
        q=q64,
        k=k64,
        v=v64,
        do=do64,
        causal=causal,
        scale=q.shape[-1] ** -0.5,
        dtype=str(q.dtype).removeprefix("torch."),
    )
