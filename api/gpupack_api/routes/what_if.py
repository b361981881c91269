# SPDX-License-Identifier: Apache-2.0
"""What would become of a GPUJob, and what one that waits waits for; nothing is changed by it.

Answered by the very code that decides, on a copy of what it knows. Other tenants' jobs are named to
whoever may list them, and counted for others.
"""

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import get, post
from litestar.datastructures import State
from litestar.params import Body

import gpupack_core as core
from gpupack_api import problems
from gpupack_api.asked_job import Unaskable, ask_of, judged
from gpupack_api.errors import CallWrong, Missing
from gpupack_api.job_views import WorkerView, held_device
from gpupack_api.routes.jobs import NAME, OneName, OneNamespace
from gpupack_api.routes.parts import PREFIX, Call, Parts, parts_of, token_of
from gpupack_api.start_view import StartView, start_view
from gpupack_core.queueing import Borrowed, Never, Now, latest
from gpupack_crds.gpujob import PolicyName
from gpupack_crds.gpuquota import GpuQuotaSpec
from gpupack_scheduling.ledger import claims
from gpupack_scheduling.planning import reason_of
from gpupack_scheduling.queueing.ask import GangAsk, job_id
from gpupack_scheduling.queueing.what_if import (
    Answer,
    Changes,
    Other,
    prepare_explain,
    prepare_what_if,
)
from gpupack_serving.user import User

MOST_NODES: Final = 256
MOST_QUOTAS: Final = 32
MOST_BYTES: Final = 2 << 20
MAX_NAMED: Final = 100
"""Jobs and namespaces in one answer; the others are counted."""


class QuotaInstead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPUQuota of a namespace instead of the one that there is.

    Attributes:
        namespace: whose; the caller has to be allowed to list its quotas.
        spec: of a GPUQuota.
    """

    namespace: Annotated[str, msgspec.Meta(max_length=63, pattern=NAME)]
    spec: GpuQuotaSpec


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question.

    Attributes:
        namespace: where the job would be.
        job: spec of a GPUJob, as `kubectl apply` takes it.
        without_nodes: nodes that take no new work.
        policy: by which it is placed, instead of its own; empty: its own, or the cluster's.
        quotas: instead of those that there are.
    """

    namespace: Annotated[str, msgspec.Meta(max_length=63, pattern=NAME)]
    job: dict[str, Any]
    without_nodes: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=253)]], msgspec.Meta(max_length=MOST_NODES)
    ] = []
    policy: Literal[PolicyName, ""] = ""
    quotas: Annotated[list[QuotaInstead], msgspec.Meta(max_length=MOST_QUOTAS)] = []


Asked = Annotated[WhatIf, Body(schema_extra={"additionalProperties": False})]


class JobRef(msgspec.Struct, frozen=True):
    """A GPUJob, or a pod of its own."""

    namespace: str
    name: str


class Outcome(msgspec.Struct, frozen=True):
    """What would become of the job if it were made now.

    Attributes:
        outcome: Starts: it has places, once those in `instead_of` have left. Waits. Never: the
            cluster as it is could not run it, or it would fail at once.
        reason: as its status would have it; Admitted, or VictimsEnd, where it starts.
        message: the same in words.
        workers: where they would be.
        position: among all jobs and standalone pods that wait in the cluster, in the order in which
            they are admitted; the first is 1; null: it starts, or is not in the queue.
        waiting: how many wait in the cluster, the job among them where it does.
        start: when it starts; null: it does, or is not in the queue.
        foreseen_seconds: by then it starts at the latest, where that is foreseen.
        instead_of: jobs and pods that would be stopped or moved for it and that may be named.
        instead_of_hidden: how many more.
        would_help: what would let it start; what stands behind that is not looked at.
    """

    outcome: Literal["Starts", "Waits", "Never"]
    reason: str
    message: str
    workers: list[WorkerView]
    position: int | None
    waiting: int
    foreseen_seconds: float | None
    instead_of: list[JobRef]
    instead_of_hidden: int
    would_help: list[str]
    start: StartView | None = None


class Explanation(msgspec.Struct, frozen=True):
    """What a GPUJob waits for.

    Attributes:
        phase: of the job.
        reason: why it waits, worked out now where it stands in the queue; else as its status says.
        message: the same in words.
        position: among all jobs and standalone pods that wait in the cluster, in the order in which
            they are admitted; the first is 1; null: it is not in the queue.
        waiting: how many wait in the cluster.
        start: when it starts; null: it is not in the queue.
        ahead: who waits and goes before it and may be named.
        ahead_hidden: how many more.
        foreseen_seconds: by then it starts at the latest, where that is foreseen.
        fits_now: whether it has room, whoever else waits and whatever quotas say; null: it does not
            stand in the queue.
        would_help: what would let it start; what stands behind that is not looked at.
    """

    phase: str
    reason: str
    message: str
    position: int | None
    waiting: int
    ahead: list[JobRef]
    ahead_hidden: int
    foreseen_seconds: float | None
    fits_now: bool | None
    would_help: list[str]
    start: StartView | None = None


@post(
    f"{PREFIX}/what-if",
    tags=["questions"],
    status_code=200,
    request_max_body_size=MOST_BYTES,
    responses=problems.WRITES | problems.MISSING,
)
async def what_if(request: Call, state: State, data: Asked) -> Outcome:
    """Tell what would become of a GPUJob if it were made now.

    It is judged as `kubectl apply` would have it judged, with the caller's token. Whether its pods
    would be admitted (ResourceQuotas, Pod Security) is not asked.
    """
    parts = parts_of(state)
    user = await parts.viewer(request)
    api = parts.api.on_behalf(token_of(request))
    await _require_visible(parts, user, data)
    job = await judged(api, data.job, namespace=data.namespace)
    classes = parts.model.classes
    ask = ask_of(
        job,
        namespace=data.namespace,
        policy=data.policy,
        priority_of=lambda spec: classes.judge(name=spec.priority_class_name, number=spec.priority),
        observed=parts.model.decisions.observed_resources,
        now=parts.model.onlooker.admissions.now(),
    )
    if isinstance(ask, Unaskable):
        return _unasked(parts, ask)
    if obstacle := parts.model.onlooker.admissions.obstacle(ask):
        return _unasked(parts, Unaskable("QueueFull", obstacle))
    return await _outcome(parts, user, ask, await _answered(parts, user, ask, data))


@get(
    f"{PREFIX}/jobs/{{namespace:str}}/{{name:str}}/explain",
    tags=["questions"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def explain(
    request: Call, state: State, namespace: OneNamespace, name: OneName
) -> Explanation:
    """Tell what a GPUJob waits for, and what would help."""
    parts = parts_of(state)
    user = await parts.user(request)
    await parts.rights.require_namespace(user, "gpujobs", namespace)
    job = parts.model.jobs.by_key.get((namespace, name))
    if job is None:
        raise Missing(f"there is no GPUJob {namespace}/{name}")
    onlooker, status = parts.model.onlooker, job.status
    onlooker.follow()
    attempt, waiting = onlooker.attempt(job.metadata.uid), len(onlooker.admissions.queue)
    if attempt is None:
        return Explanation(
            phase=status.phase,
            reason=status.reason,
            message=onlooker.obstacle(job.metadata.uid) or status.message,
            position=None,
            waiting=waiting,
            ahead=[],
            ahead_hidden=0,
            foreseen_seconds=None,
            fits_now=None,
            would_help=[],
        )
    found = await parts.questions.answer(
        user, lambda: prepare_explain(onlooker), lambda copy: copy.explain(job_id(attempt))
    )
    named, hidden = await _named(parts, user, namespace, found.ahead)
    wait = found.wait
    return Explanation(
        phase=status.phase,
        reason=reason_of(wait) if wait else "Next",
        message=wait.message if wait else "it fits, and its turn comes with the next decision",
        position=wait.position if wait else 1,
        waiting=max(found.waiting, 1),
        ahead=named,
        ahead_hidden=hidden,
        foreseen_seconds=_foreseen(parts, found),
        fits_now=found.fits_now,
        would_help=await _would_help(parts, user, namespace, found),
        start=start_view(wait.start if wait else Now()),
    )


async def _require_visible(parts: Parts, user: User, asked: WhatIf) -> None:
    """Other quotas than there are would tell of a namespace what it uses."""
    for number, each in enumerate(asked.quotas):
        await parts.rights.require_namespace(user, "gpuquotas", each.namespace)
        for at, limit in enumerate(each.spec.gpus):
            lent = limit.lending_limit
            if lent is not None and lent > limit.nominal:
                field = f"quotas[{number}].spec.gpus[{at}].lendingLimit"
                raise CallWrong(field, lent, f"set it to no more than nominal, {limit.nominal}")
    for number, name in enumerate(asked.without_nodes):
        if core.NodeName(name) not in parts.model.ledger.cluster:
            raise CallWrong(f"without_nodes[{number}]", name, "there is no such node with GPUs")


async def _answered(parts: Parts, user: User, ask: GangAsk, asked: WhatIf) -> Answer:
    model = parts.model
    changes = Changes(
        without_nodes=tuple(map(core.NodeName, asked.without_nodes)),
        quotas={each.namespace: each.spec for each in asked.quotas},
    )
    return await parts.questions.answer(
        user,
        lambda: prepare_what_if(
            model.onlooker, ask, changes, quotas=model.quotas, decisions=model.decisions
        ),
        lambda copy: copy.what_if(ask.job),
    )


def _unasked(parts: Parts, why: Unaskable) -> Outcome:
    """It does not come into the queue."""
    return Outcome(
        outcome="Never" if why.for_good else "Waits",
        reason=why.reason,
        message=why.message,
        workers=[],
        position=None,
        waiting=len(parts.model.onlooker.admissions.queue),
        foreseen_seconds=None,
        instead_of=[],
        instead_of_hidden=0,
        would_help=[],
    )


async def _outcome(parts: Parts, user: User, ask: GangAsk, found: Answer) -> Outcome:
    wait = found.wait
    if wait is None:
        named, hidden = await _named(parts, user, ask.namespace, found.stopped)
        workers = _workers(parts, found)
        return Outcome(
            outcome="Starts",
            reason="VictimsEnd" if found.stopped else "Admitted",
            message=_starts(workers, len(found.stopped)),
            workers=workers,
            position=None,
            waiting=found.waiting,
            foreseen_seconds=None if found.stopped else 0.0,
            instead_of=named,
            instead_of_hidden=hidden,
            would_help=[],
        )
    return Outcome(
        outcome="Never" if isinstance(wait.start, Never) else "Waits",
        reason=reason_of(wait),
        message=wait.message,
        workers=[],
        position=wait.position,
        waiting=found.waiting,
        foreseen_seconds=_foreseen(parts, found),
        instead_of=[],
        instead_of_hidden=0,
        would_help=await _would_help(parts, user, ask.namespace, found),
        start=start_view(wait.start),
    )


def _workers(parts: Parts, found: Answer) -> list[WorkerView]:
    """Of observed GPUs nobody says which."""
    ledger = parts.model.ledger
    placed = (
        [ledger.claims.allocation(each) for each in found.starts.places] if found.starts else []
    )
    return [
        WorkerView(
            number,
            each.node,
            [
                held_device(share, each.node, ledger.cluster)
                for share in claims.shares(each.placement)
            ],
        )
        for number, each in enumerate(placed)
    ]


def _starts(workers: list[WorkerView], stopped: int) -> str:
    nodes = list(dict.fromkeys(each.node for each in workers))
    what = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    more = f" and {len(nodes) - MOST_TOLD} more" if len(nodes) > MOST_TOLD else ""
    where = f"{what} would be on {', '.join(nodes[:MOST_TOLD])}{more}"
    if not stopped:
        return where
    ends = "1 other has" if stopped == 1 else f"{stopped} others have"
    return f"{where}, once {ends} ended or moved for it"


MOST_TOLD: Final = 8
"""Nodes in a sentence."""


def _foreseen(parts: Parts, found: Answer) -> float | None:
    by = latest(found.wait.start) if found.wait else None
    if by is None:
        return None
    return round(max(by.at - parts.model.onlooker.admissions.now(), 0.0), 1)


async def _named(
    parts: Parts, user: User, own: str, found: Collection[Other]
) -> tuple[list[JobRef], int]:
    """Those that the caller may list, and how many others there are."""
    jobs = await _visible(parts, user, "gpujobs", own, (e.namespace for e in found if not e.is_pod))
    pods = await parts.rights.among(user, "pods", {e.namespace for e in found if e.is_pod})
    named = [
        JobRef(each.namespace, each.name)
        for each in found
        if each.namespace in (pods if each.is_pod else jobs)
    ]
    shown = named[:MAX_NAMED]
    return shown, len(found) - len(shown)


async def _visible(
    parts: Parts, user: User, kind: str, own: str, there: Iterable[str]
) -> Collection[str]:
    """His own namespace first: of so many only some are asked about."""
    others = set(there)
    mine = await parts.rights.among(user, kind, others & {own})
    return {*mine, *await parts.rights.among(user, kind, others - {own})}


async def _would_help(parts: Parts, user: User, own: str, found: Answer) -> list[str]:
    if found.wait is None:
        return []
    borrowed = found.wait.borrowed
    seen = await _visible(parts, user, "gpuquotas", own, (each.tenant for each in borrowed))
    named = [f"{each.tenant} gives back {each.text}" for each in borrowed if each.tenant in seen]
    hidden = [each for each in borrowed if each.tenant not in seen]
    more = len(named) - MAX_NAMED
    left_out = [f"{more} more namespaces give back what they borrowed"] if more > 0 else []
    return [*found.wait.helps, *named[:MAX_NAMED], *left_out, *_of_others(hidden)]


def _of_others(borrowed: Collection[Borrowed]) -> Iterable[str]:
    """Together, by model: whose they are is not said."""
    sums: dict[str, float] = {}
    for each in borrowed:
        sums[each.key] = sums.get(each.key, 0.0) + each.milli
    for each in {of.key: of for of in borrowed}.values():
        together = Borrowed(each.tenant, sums[each.key], each.key)
        yield f"other namespaces give back {together.text}"
