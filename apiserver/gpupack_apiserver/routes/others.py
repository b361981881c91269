# SPDX-License-Identifier: Apache-2.0
"""The parts of an answer about other jobs and pods, as far as the caller may see them."""

from collections.abc import Collection, Iterable
from typing import Final

from gpupack_apiserver.routes.parts import Parts
from gpupack_httpserver.user import User
from gpupack_queue import Borrowed, latest_start
from gpupack_restapi.questions import JobRef
from gpupack_scheduler.queueing.what_if import Answer, Other

MAX_NAMED: Final = 100
"""Maximum jobs and namespaces in one answer; the others are counted."""


def estimated_wait_seconds(parts: Parts, found: Answer) -> float | None:
    """Return the seconds until its latest start; None: unknown."""
    by = latest_start(found.wait.start) if found.wait else None
    if by is None:
        return None
    return round(max(by.at - parts.model.queue_copy.observed.now(), 0.0), 1)


async def named_and_hidden(
    parts: Parts, user: User, own: str, found: Collection[Other]
) -> tuple[list[JobRef], int]:
    """Return those that the caller may list, and the number of others."""
    jobs = await _visible(parts, user, "gpujobs", own, (e.namespace for e in found if not e.is_pod))
    pods = await parts.rights.visible_among(user, "pods", {e.namespace for e in found if e.is_pod})
    named = [
        JobRef(each.namespace, each.name, "Pod" if each.is_pod else "GPUJob")
        for each in found
        if each.namespace in (pods if each.is_pod else jobs)
    ]
    shown = named[:MAX_NAMED]
    return shown, len(found) - len(shown)


async def _visible(
    parts: Parts, user: User, kind: str, own: str, there: Iterable[str]
) -> Collection[str]:
    """Return visible namespaces, the caller's own first: of many, only some are checked."""
    others = set(there)
    mine = await parts.rights.visible_among(user, kind, others & {own})
    return {*mine, *await parts.rights.visible_among(user, kind, others - {own})}


async def would_help(parts: Parts, user: User, own: str, found: Answer) -> list[str]:
    """Return changes that would let it start; name namespaces whose quotas the caller may see."""
    if found.wait is None:
        return []
    borrowed = found.wait.borrowed
    seen = await _visible(parts, user, "gpuquotas", own, (each.tenant for each in borrowed))
    named = [f"{each.tenant} gives back {each.text}" for each in borrowed if each.tenant in seen]
    hidden = [each for each in borrowed if each.tenant not in seen]
    more = len(named) - MAX_NAMED
    left_out = [f"{more} more namespaces give back what they borrowed"] if more > 0 else []
    return [*found.wait.remedies, *named[:MAX_NAMED], *left_out, *_hidden_sums(hidden)]


def _hidden_sums(borrowed: Collection[Borrowed]) -> Iterable[str]:
    """Yield sums by model, without the namespaces' names."""
    sums: dict[str, float] = {}
    for each in borrowed:
        sums[each.key] = sums.get(each.key, 0.0) + each.milli
    for each in {of.key: of for of in borrowed}.values():
        together = Borrowed(each.tenant, sums[each.key], each.key)
        yield f"other namespaces give back {together.text}"
