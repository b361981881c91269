# SPDX-License-Identifier: Apache-2.0
"""How far a GPU may be used, and what speaks against it."""

import dataclasses
from collections.abc import Iterable

from gpupack_crds.gpunode import MAX_CAUSES, Health

ORDER: tuple[Health, ...] = ("Healthy", "Degraded", "Draining", "Failed")
"""From the best to the worst."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that speaks against a GPU.

    Attributes:
        rule: its name, CamelCase, for machines.
        health: how far the GPU may be used if this were all.
        text: for people, with what to do about it.
    """

    rule: str
    health: Health
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Grade:
    """Of one GPU at one moment.

    Attributes:
        cause: the text of the worst finding.
        causes: the rules of all of them, the worst first.
    """

    health: Health = "Healthy"
    cause: str = ""
    causes: tuple[str, ...] = ()


def graded(findings: Iterable[Finding]) -> Grade:
    """The worst one counts; of equals the first."""
    worst_first = sorted(findings, key=lambda each: -ORDER.index(each.health))
    if not worst_first:
        return Grade()
    rules = tuple(dict.fromkeys(each.rule for each in worst_first))[:MAX_CAUSES]
    return Grade(worst_first[0].health, worst_first[0].text, rules)


def is_worse(one: Health, other: Health) -> bool:
    """Whether the first is worse than the second."""
    return ORDER.index(one) > ORDER.index(other)
