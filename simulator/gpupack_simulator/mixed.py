# SPDX-License-Identifier: Apache-2.0
"""Jobs with wishes for models and memory for clusters of several models, drawn by a seed.

A job has a **size** (a number of GPUs, or a part of one) and a **wish** (models, or a minimum
memory of the GPU; or neither). Sizes and wishes have weights and are drawn independently, except
that a pair that fits on no node of the cluster is never drawn:

    chance of (size, wish) ~ weight of the size · weight of the wish, or 0 if it never fits

The draw gives the pods of a trace: workload.py fills a cluster with them or lets them come and go,
as with those of openb. Weights are assumptions of their author: no public trace has both the
requested models and the requested memory. The description is YAML (inputs/mixedfile.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from random import Random
from typing import Final

from gpupack_placement import Cluster, Node, Request, explain
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.openb import Pod

MAX_PODS: Final = 1_000_000
MAX_PAIRS: Final = 4096
"""Maximum number of pairs of a size and a wish."""


@dataclass(frozen=True, slots=True)
class WeightedRequest:
    """A size or a wish with its weight. Of a wish only `models` and `min_memory` count."""

    request: Request
    weight: float

    def __post_init__(self) -> None:
        if not 0 < self.weight < inf:
            raise InvalidParameter(f"a weight of {self.weight:g}: use more than 0, not without end")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedStyle:
    """A mixed cluster and its jobs. `pods`: number to draw, by `seed`."""

    nodes: tuple[Node, ...]
    sizes: tuple[WeightedRequest, ...]
    wishes: tuple[WeightedRequest, ...]
    pods: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.pods <= MAX_PODS:
            raise InvalidParameter(f"{self.pods} pods: draw 1 to {MAX_PODS:,}")
        if not 0 < len(self.sizes) * len(self.wishes) <= MAX_PAIRS:
            raise InvalidParameter(
                f"{len(self.sizes)} sizes and {len(self.wishes)} wishes: use 1 or more of both, "
                f"and at most {MAX_PAIRS:,} pairs"
            )


def chances(style: MixedStyle) -> dict[Request, float]:
    """Return the probability of each request; they add up to 1."""
    cluster = Cluster(style.nodes)
    weights: dict[Request, float] = {}
    for size, wish in product(style.sizes, style.wishes):
        request = replace(
            size.request, models=wish.request.models, min_memory=wish.request.min_memory
        )
        if _fits(cluster, request):
            weights[request] = weights.get(request, 0.0) + size.weight * wish.weight
    whole = sum(weights.values())
    if not whole:
        raise InvalidParameter("no size with any wish fits on any of the nodes")
    return {request: weight / whole for request, weight in weights.items()}


def mixed_pods(style: MixedStyle) -> tuple[Pod, ...]:
    """Draw the pods; their names have the number of the draw."""
    likely = chances(style)
    random = Random(style.seed)  # noqa: S311  # not for secrets
    drawn: Sequence[Request] = random.choices(list(likely), list(likely.values()), k=style.pods)
    return tuple(Pod(f"pod-{number:07}", request) for number, request in enumerate(drawn))


def _fits(cluster: Cluster, request: Request) -> bool:
    """Tell whether the request fits on an empty node; all of these are empty."""
    return len(explain(cluster, request)) < len(cluster)
