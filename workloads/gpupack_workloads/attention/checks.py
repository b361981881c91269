# SPDX-License-Identifier: Apache-2.0
"""Compares attention and its gradient with the reference, head by head."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.attention import Expected, Head, compare, expected
from gpupack_workloads.reference.freivalds import random_signs


class Attention(Protocol):
    """Signature of our function and of its replacements."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, **scale: float
    ) -> torch.Tensor:
        """Return O."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Q, K, V with requires_grad, and dO."""

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
    """Elements that came closest to their bounds."""

    forward: Agreement
    backward: Agreement

    def merge(self, other: "Verdict") -> "Verdict":
        """Return the closest elements of both."""
        return Verdict(
            closest([self.forward, other.forward]), closest([self.backward, other.backward])
        )


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


def check(
    attention: Attention, inputs: Inputs, *, causal: bool, scale: float | None = None
) -> Verdict:
    """Compute forward and backward, and compare the first and the last key head's share.

    Raises:
        WrongResult: an element differs by more than rounding explains.
    """
    given = {} if scale is None else {"scale": scale}
    o = attention(*inputs.qkv, causal=causal, **given)
    gradients = torch.autograd.grad(o, inputs.qkv, inputs.do)
    batch, kv_heads = inputs.k.shape[:2]
    return judge(
        inputs,
        (o.detach(), *gradients),
        CheckSpec(causal=causal, scale=scale),
        places=sorted({(0, 0), (batch - 1, kv_heads - 1)}),
    )


def check_timed(
    inputs: Inputs, results: tuple[torch.Tensor, ...], *, causal: bool, seed: int
) -> Verdict:
    """Compare O, dQ, dK and dV of every head, as they were left, projected on random signs.

    Raises:
        WrongResult: a row differs by more than rounding explains.
    """
    batch, kv_heads, _, dimension = inputs.k.shape
    chance = torch.Generator(inputs.q.device).manual_seed(seed)
    signs = random_signs(dimension, chance)[:, None]
    return judge(
        inputs,
        results,
        CheckSpec(causal=causal, signs=signs, how=", as it was timed"),
        places=list(itertools.product(range(batch), range(kv_heads))),
    )


@dataclass(frozen=True, kw_only=True)
class CheckSpec:
    """Description of what was computed, and how closely to check it.

    Attributes:
        scale: scale of the scores; None is one over the root of the dimension.
        signs: (dimension, few), on which results are projected; None looks at every element.
        how: text that an error message gets.
    """

    causal: bool
    scale: float | None = None
    signs: torch.Tensor | None = None
    how: str = ""


def judge(
    inputs: Inputs,
    results: tuple[torch.Tensor, ...],
    question: CheckSpec,
    *,
    places: list[tuple[int, int]],
) -> Verdict:
    """Compare what belongs to these key heads (of a batch's entry).

    Raises:
        WrongResult: something differs by more than rounding explains.
    """
    verdicts = [verdict_of(inputs, results, question, place=place) for place in places]
    forward = closest([verdict.forward for verdict in verdicts])
    backward = closest([verdict.backward for verdict in verdicts])
    for what, agreement in (("forward", forward), ("backward", backward)):
        if not agreement.holds:
            raise WrongResult(
                f"attention {what}{question.how}, q {tuple(inputs.q.shape)},"
                f" k {tuple(inputs.k.shape)}, {inputs.q.dtype}, causal {question.causal}:"
                f" wrong by {agreement.error:.3e} where rounding explains {agreement.bound:.3e}"
            )
    return Verdict(forward, backward)


def verdict_of(
    inputs: Inputs,
    results: tuple[torch.Tensor, ...],
    question: CheckSpec,
    *,
    place: tuple[int, int],
) -> Verdict:
    """Compare what belongs to one key head: that head, and all query heads that share it."""
    o, dq, dk, dv = results
    batch, kv_head = place
    group = inputs.q.shape[1] // inputs.k.shape[1]
    numbers = range(kv_head * group, (kv_head + 1) * group)
    heads = [head_of(inputs, question, place=(batch, number, kv_head)) for number in numbers]
    wanted = [expected(head) for head in heads]
    forward, backward = [], []
    for number, head, want in zip(numbers, heads, wanted, strict=True):
        forward.append(compare(o[batch, number], head, want.o, want.o_bound))
        backward.append(compare(dq[batch, number], head, want.dq, want.dq_bound))
    for gradient, name in ((dk, "dk"), (dv, "dv")):
        exact, bound = total(wanted, name), total(wanted, f"{name}_bound")
        backward.append(compare(gradient[batch, kv_head], heads[0], exact, bound))
    return Verdict(closest(forward), closest(backward))


def total(wanted: Iterable[Expected], name: str) -> torch.Tensor:
    """Add up what query heads contribute to a key head's gradient, or the bounds of that."""
    parts: list[torch.Tensor] = [getattr(want, name) for want in wanted]
    return torch.stack(parts).sum(0)


def head_of(inputs: Inputs, question: CheckSpec, *, place: tuple[int, int, int]) -> Head:
    """Return one head's problem in 64 bits: of a batch's entry, a query head and its key head."""
    batch, head, kv_head = place
    q, do = inputs.q[batch, head], inputs.do[batch, head]
    k, v = inputs.k[batch, kv_head], inputs.v[batch, kv_head]
    q64, k64, v64, do64 = (x.detach().double() for x in (q, k, v, do))
    return Head(
        q=q64,
        k=k64,
        v=v64,
        do=do64,
        causal=question.causal,
        scale=q.shape[-1] ** -0.5 if question.scale is None else question.scale,
        dtype=str(q.dtype).removeprefix("torch."),
        signs=question.signs,
    )
