# SPDX-License-Identifier: Apache-2.0
"""The grade of a GPU: how far it may be used, and the findings against it."""

import dataclasses
from collections.abc import Iterable

from gpupack_crds.gpunode import MAX_CAUSES, Health

HEALTH_ORDER: tuple[Health, ...] = ("Healthy", "Degraded", "Cordoned", "Failed")
"""The grades from the best to the worst. `Cordoned`: no new work; nothing is evicted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One finding against a GPU.

    Attributes:
        rule: name of the rule in CamelCase, for programs.
        health: how far the GPU could be used if this were the only finding.
        text: the description for people, with the action to take.
    """

    rule: str
    health: Health
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one GPU at one moment.

    Attributes:
        health: health of the worst finding.
        cause: text of the worst finding.
        causes: names of the rules of all findings, the worst first, MAX_CAUSES at most.
        xids: the XIDs that count against the GPU.
    """

    health: Health = "Healthy"
    cause: str = ""
    causes: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()


def worst_grade(findings: Iterable[Finding]) -> Grade:
    """Return the grade of some findings: the worst one counts, and the first of equal ones."""
    worst_first = sorted(findings, key=lambda each: -HEALTH_ORDER.index(each.health))
    if not worst_first:
        return Grade()
    rules = tuple(dict.fromkeys(each.rule for each in worst_first))[:MAX_CAUSES]
    return Grade(worst_first[0].health, worst_first[0].text, rules)


def is_worse(one: Health, other: Health) -> bool:
    """Tell whether the first is worse than the second."""
    return HEALTH_ORDER.index(one) > HEALTH_ORDER.index(other)
