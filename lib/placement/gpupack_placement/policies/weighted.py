# SPDX-License-Identifier: Apache-2.0
"""A weighted combination of policies: `0.7*fgd+0.3*best-fit`.

    score = Σ weight · 100 · (s - least s) / (largest s - least s)

s: the score of each policy, least and largest over the nodes that have room; a policy that scores
all nodes alike adds nothing. So weights count alike on any scale, as in kube-scheduler, and a
node's score depends on which others have room. The device of a share is chosen by the policy with
the largest weight, the first among equals.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.demand_forecast import DemandForecast
from gpupack_placement.errors import UnknownPolicy
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request

_TERM: Final = re.compile(r"\s*(?:(?P<weight>[0-9]+(?:\.[0-9]+)?)\s*\*)?\s*(?P<name>[a-z-]+)\s*")


class Weighted(Policy):
    """A weighted combination; its name is the expression."""

    relative = True

    def __init__(self, parts: Sequence[tuple[float, Policy]]) -> None:
        self._parts = tuple(parts)
        self.prefers_fastest = any(policy.prefers_fastest for _, policy in parts)
        self.name = "+".join(f"{weight:g}*{policy.name}" for weight, policy in parts)

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        total = np.zeros(len(rows))
        for weight, policy in self._parts:
            total += weight * _normalised(policy.score(view, request, rows))
        return total

    def informed(self, forecast: DemandForecast) -> "Weighted":
        """Return the combination of the informed policies."""
        return Weighted([(weight, policy.informed(forecast)) for weight, policy in self._parts])

    def share_column(self, view: Arrays, request: Request, row: int, columns: Sequence[int]) -> int:
        """Return the column that the policy with the largest weight chooses."""
        _, heaviest = max(self._parts, key=lambda part: part[0])
        return heaviest.share_column(view, request, row, columns)


def terms(expression: str) -> list[tuple[float, str]]:
    """Parse `0.7*fgd+0.3*best-fit` into weights and names; a missing weight is 1.

    Raises:
        UnknownPolicy: the form is wrong; the message names the part.
    """
    found = [_term(part, expression) for part in expression.split("+")]
    names = [name for _, name in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnknownPolicy(f"{expression!r}: {twice} stands there twice; add its weights up")
    return found


def _term(part: str, expression: str) -> tuple[float, str]:
    match = _TERM.fullmatch(part)
    if match is None:
        raise UnknownPolicy(
            f"{expression!r}: {part.strip()!r} is not a policy with a weight such as 0.7*fgd; "
            "write 0.7*fgd+0.3*best-fit"
        )
    weight = float(match["weight"] or 1)
    if not 0 < weight < float("inf"):
        raise UnknownPolicy(f"{expression!r}: the weight of {match['name']} must be above 0")
    return weight, match["name"]


def _normalised(scores: FloatArray) -> FloatArray:
    least, largest = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return (scores - least) * (100.0 / (largest - least)) if largest > least else scores * 0.0
