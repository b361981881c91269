# SPDX-License-Identifier: Apache-2.0
"""Each kernel with its operands: ours, plain torch, Liger's, and what is checked of ours.

A case is computed in two ways that are timed apart: forward without gradients, and backward of a
graph that is kept. The loss computes its gradients in the forward pass, so that its backward pass
alone would say nothing: the second way is both, from operands to gradients.

Shape legend: T tokens, H hidden, I intermediate, V vocabulary, D numbers of a head.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch.nn import functional

from gpupack_kernels.loading import load
from gpupack_workloads.llm_kernels import Sizes
from gpupack_workloads.reference import language as reference
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.transformer.operations import EPSILON, gate, rotate, rotation

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Tensors]

# Of logits, as of a trained model: with plain normal numbers all words have the same probability.
SPREAD = 2.0


class Case:
    """A kernel with its inputs and its check.

    Attributes:
        name: name of the kernel.
        ways: how it is timed.
        inputs: that want gradients.
        gains: gradients of the outputs.
    """

    name: ClassVar[str]
    ways: ClassVar[tuple[str, str]] = ("forward", "backward")

    def __init__(self, sizes: Sizes, device: torch.device, seed: int) -> None:
        self.sizes, self.device = sizes, device
        self.dtype: torch.dtype = getattr(torch, sizes.dtype)
        self._chance = torch.Generator(device).manual_seed(seed)
        self.kernel = load(f"{self.name}.ops", self.name)
        self.inputs: Tensors = ()
        self.gains: Tensors = ()

    def random(self, *shape: int, spread: float = 1.0) -> torch.Tensor:
        """Return normal numbers of the case's type."""
        numbers = torch.randn(shape, generator=self._chance, device=self.device) * spread
        return numbers.to(self.dtype)

    def ours(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by our kernel."""
        raise NotImplementedError

    def plain(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by plain torch, which torch.compile takes as well."""
        raise NotImplementedError

    def by_liger(self, liger: Any) -> Function:
        """Return Liger's, given its module of functions; it may overwrite its inputs."""
        raise NotImplementedError

    def check(self, way: str, found: Tensors) -> list[Agreement]:
        """Compare what ours has left with 64 bits: outputs, gradients, or for both all of them."""
        raise NotImplementedError

    def work(self, way: str) -> tuple[str, float]:
        """Return the unit of speed, and how many 10^9 of its bytes or operations a way takes."""
        raise NotImplementedError


def gigabytes(*tensors: torch.Tensor) -> tuple[str, float]:
    """Return the size of what must be read and written."""
    return "gb_per_s", sum(t.numel() * t.element_size() for t in tensors) / 1e9


class RmsNorm(Case):
    """RMS norm of rows [T, H]."""

    name = "rms_norm"

    def __init__(self, sizes: Sizes, device: torch.device, seed: int) -> None:
        super().__init__(sizes, device, seed)
        shape = (sizes.tokens, sizes.hidden)
        self.inputs = (self.random(*shape), self.random(sizes.hidden))
        self.gains = (self.random(*shape),)

    def ours(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by our kernel."""
        return (self.kernel(*inputs, EPSILON),)

    def plain(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by torch's own, which is one kernel without being compiled, too."""
        x, weight = inputs
        return (functional.rms_norm(x, (x.shape[-1],), weight, EPSILON),)

    def by_liger(self, liger: Any) -> Function:
        """Return Liger's as it is for Llama."""
        return lambda x, weight: (liger.liger_rms_norm(x, weight, EPSILON, in_place=False),)

    def check(self, way: str, found: Tensors) -> list[Agreement]:
        """Compare every element."""
        x, weight = self.inputs
        if way == "forward":
            return [reference.compare_rms_norm(x, weight, EPSILON, found[0])]
        gradients = (found[0], found[1])
        return reference.compare_rms_norm_backward(x, weight, EPSILON, self.gains[0], gradients)

    def work(self, way: str) -> tuple[str, float]:
        """Count forward x and y; backward x, dy and dx; and weights."""
        x, weight = self.inputs
        return gigabytes(*[x] * (2 if way == "forward" else 3), weight)


class Rotary(Case):
    """Rotation of queries and keys [1, heads, T, D] in the products' order: tokens first."""

    name = "rotary"

    def __init__(self, sizes: Sizes, device: torch.device, seed: int) -> None:
        super().__init__(sizes, device, seed)
        self.tables = rotation(sizes.tokens, sizes.head, self.dtype, device)
        heads = (sizes.heads, sizes.kv_heads)
        self.inputs, self.gains = (
            tuple(self.random(1, sizes.tokens, h, sizes.head).transpose(1, 2) for h in heads)
            for _ in range(2)
        )

    def ours(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by our kernel."""
        turned: Tensors = self.kernel(*inputs, *self.tables)
        return turned

    def plain(self, *inputs: torch.Tensor) -> Tensors:
        """Compute as the transformer does."""
        q, k = inputs
        return rotate(q, k, *self.tables)

    def by_liger(self, liger: Any) -> Function:
        """Return Liger's, whose tables have each angle twice."""
        cosine, sine = (torch.cat([table, table], -1)[None] for table in self.tables)
        return lambda q, k: liger.liger_rope(q, k, cosine, sine)

    def check(self, way: str, found: Tensors) -> list[Agreement]:
        """Compare every element."""
        back = way == "backward"
        given = self.gains if back else self.inputs
        return [
            reference.compare_rotary(x, *self.tables, y, back=back)
            for x, y in zip(given, found, strict=True)
        ]

    def work(self, way: str) -> tuple[str, float]:
        """Count each once in and once out, and tables."""
        del way
        return gigabytes(*self.inputs, *self.inputs, *self.tables)


class SwiGlu(Case):
    """SwiGLU of two matrices [T, I]."""

    name = "swiglu"

    def __init__(self, sizes: Sizes, device: torch.device, seed: int) -> None:
        super().__init__(sizes, device, seed)
        shape = (sizes.tokens, sizes.intermediate)
        self.inputs = (self.random(*shape, spread=SPREAD), self.random(*shape))
        self.gains = (self.random(*shape),)

    def ours(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by our kernel."""
        return (self.kernel(*inputs),)

    def plain(self, *inputs: torch.Tensor) -> Tensors:
        """Compute as the transformer does."""
        return (gate(*inputs),)

    def by_liger(self, liger: Any) -> Function:
        """Return Liger's."""
        return lambda opening, value: (liger.liger_swiglu(opening, value),)

    def check(self, way: str, found: Tensors) -> list[Agreement]:
        """Compare every element."""
        opening, value = self.inputs
        if way == "forward":
            return [reference.compare_swiglu(opening, value, found[0])]
        gradients = (found[0], found[1])
        return reference.compare_swiglu_backward(opening, value, self.gains[0], gradients)

    def work(self, way: str) -> tuple[str, float]:
        """Count forward two in and one out, backward three and two."""
        return gigabytes(*[self.inputs[0]] * (3 if way == "forward" else 5))


class LinearCrossEntropy(Case):
    """Fused head and loss of tokens [T, H], a head [V, H] and targets [T]."""

    name = "linear_cross_entropy"
    ways = ("forward", "both")

    def __init__(self, sizes: Sizes, device: torch.device, seed: int) -> None:
        super().__init__(sizes, device, seed)
        tokens, hidden, vocabulary = sizes.tokens, sizes.hidden, sizes.vocabulary
        self.inputs = (
            self.random(tokens, hidden),
            self.random(vocabulary, hidden, spread=SPREAD / hidden**0.5),
        )
        self.targets = torch.randint(vocabulary, (tokens,), generator=self._chance, device=device)
        self.gains = (torch.ones((), device=device),)
        self.exact: reference.Loss | None = None

    def ours(self, *inputs: torch.Tensor) -> Tensors:
        """Compute by our kernel."""
        return (self.kernel(*inputs, self.targets),)

    def plain(self, *inputs: torch.Tensor) -> Tensors:
        """Compute through logits, in 32 bits from there."""
        logits = functional.linear(*inputs)
        return (functional.cross_entropy(logits.float(), self.targets),)

    def by_liger(self, liger: Any) -> Function:
        """Return Liger's."""
        return lambda x, weight: (liger.liger_fused_linear_cross_entropy(x, weight, self.targets),)

    def check(self, way: str, found: Tensors) -> list[Agreement]:
        """Compare the loss, and every row of the gradients where they are there."""
        if self.exact is None:
            x, weight = self.inputs
            self.exact = reference.linear_cross_entropy(x, weight, self.targets)
        loss, *gradients = found
        agreements = [reference.compare_loss(self.exact, loss)]
        if way == "both":
            dx, dweight = gradients
            length = load("linear_cross_entropy.launch", "chunk_length")(*self.inputs[0].shape)
            chunks = -(-self.sizes.tokens // length)
            agreements += reference.compare_loss_gradients(self.exact, (dx, dweight), chunks=chunks)
        return agreements

    def work(self, way: str) -> tuple[str, float]:
        """Count the operations of one product, or of three."""
        x, weight = self.inputs
        product = 2 * x.shape[0] * weight.numel() / 1e9
        return "gflops_per_s", product * (1 if way == "forward" else 3)


CASES: dict[str, type[Case]] = {
    case.name: case for case in (RmsNorm, Rotary, SwiGlu, LinearCrossEntropy)
}


def needed_bytes(names: Sequence[str], sizes: Sizes) -> int:
    """Return about what the largest of the cases needs at once on its device.

    Of plain matrices: operands and what four rivals leave, and some ten in 64 bits. Of the loss:
    what plain torch makes of all logits, the weight's gradients of four rivals, the reference's
    weight and gradient in 64 bits, and four chunks of its logits.
    """
    element: int = getattr(torch, sizes.dtype).itemsize
    heads = (sizes.heads + sizes.kv_heads) * sizes.head
    plain = {"rms_norm": sizes.hidden, "rotary": heads, "swiglu": sizes.intermediate}
    needed = {name: sizes.tokens * width * (15 * element + 80) for name, width in plain.items()}
    tokens = min(sizes.tokens, reference.LOSS_CHUNK)
    needed["linear_cross_entropy"] = sizes.vocabulary * (
        sizes.tokens * (2 * element + 12) + sizes.hidden * (6 * element + 16) + tokens * 32
    )
    return max(needed[name] for name in names)
