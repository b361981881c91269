# SPDX-License-Identifier: Apache-2.0
"""The outcome of a hypothetical GPUJob; nothing is changed.

The scheduler's own code answers, on a copy of its state. Other tenants' jobs are named to callers
that may list them, and counted for others.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid, TokenNeeded
from gpupack_apiserver.hypothetical_job import (
    CheckedJob,
    NotQueued,
    build_request,
    parse_checked_job,
    parse_judged_job,
)
from gpupack_apiserver.job_views import held_device
from gpupack_apiserver.routes.others import estimated_wait_seconds, named_and_hidden, would_help
from gpupack_apiserver.routes.parts import Call, Parts, authorization_of, parts_of
from gpupack_apiserver.start_view import models_view, start_view
from gpupack_crds.dry_run import judged
from gpupack_crds.gpujob import PolicyName
from gpupack_crds.gpuquota import GpuQuotaSpec
from gpupack_httpserver.user import User
from gpupack_placement import DEFAULT_POLICY, NodeName
from gpupack_placement.policies import DEFAULT
from gpupack_queue import Never
from gpupack_restapi import PREFIX
from gpupack_restapi.jobs import WorkerView
from gpupack_restapi.patterns import NAME
from gpupack_restapi.questions import Outcome
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.planning import reason_of
from gpupack_scheduler.queueing.pending.request import GangRequest
from gpupack_scheduler.queueing.what_if import Answer, Changes, prepare_what_if

MAX_NODES: Final = 256
MAX_QUOTAS: Final = 32
MAX_BYTES: Final = 2 << 20


class QuotaOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A namespace's GPUQuota in place of the existing one.

    Attributes:
        namespace: its namespace; the caller needs permission to list its quotas.
        spec: spec of a GPUQuota.
    """

    namespace: Annotated[str, msgspec.Meta(max_length=63, pattern=NAME)]
    spec: GpuQuotaSpec


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A what-if query.

    Attributes:
        namespace: namespace of the job.
        job: spec of a GPUJob, in the form for `kubectl apply`.
        without_nodes: nodes that take no new work.
        policy: placement policy in place of the job's own; `default` is the simulator's; empty: the
            job's own, or the cluster's.
        quotas: quotas in place of the existing ones.
        judged: whether the caller has already had the API server check the job (`dryRun=All`), and
            `job` is the spec in its answer. With a client certificate only this form is possible.
    """

    namespace: Annotated[str, msgspec.Meta(max_length=63, pattern=NAME)]
    job: dict[str, Any]
    without_nodes: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=253)]], msgspec.Meta(max_length=MAX_NODES)
    ] = []
    policy: Literal[PolicyName, "default", ""] = ""
    quotas: Annotated[list[QuotaOverride], msgspec.Meta(max_length=MAX_QUOTAS)] = []
    judged: bool = False


WhatIfBody = Annotated[WhatIf, Body(schema_extra={"additionalProperties": False})]


@post(
    f"{PREFIX}/what-if",
    tags=["questions"],
    status_code=200,
    request_max_body_size=MAX_BYTES,
    responses=problems.WRITES | problems.MISSING,
)
async def what_if(request: Call, state: State, data: WhatIfBody) -> Outcome:
    """Return the outcome for a GPUJob if it were created now.

    The API server checks it as for `kubectl apply`, with the caller's token; with `judged` the
    caller has had it checked, and needs the same permission. Admission of its pods (ResourceQuotas,
    Pod Security) is not checked.
    """
    parts = parts_of(state)
    user = await parts.require_viewer(request)
    job = await _check_job(parts, request, user, data)
    classes, changes = parts.model.classes, _changes(data)
    job_request = build_request(
        job,
        namespace=data.namespace,
        policy=DEFAULT_POLICY if data.policy == DEFAULT else data.policy,
        priority_of=lambda spec: classes.resolve(
            name=spec.priority_class_name, number=spec.priority
        ),
        observed=parts.model.decisions.observed_resources,
        now=parts.model.queue_copy.observed.now(),
    )
    if isinstance(job_request, NotQueued):
        return _not_queued(parts, job_request)
    job_request = job_request.within(changes.run_limit(data.namespace, parts.model.quotas))
    if obstacle := parts.model.queue_copy.observed.obstacle(job_request):
        return _not_queued(parts, NotQueued("QueueFull", obstacle))
    answer = await _answer(parts, user, job_request, changes)
    return await _outcome(parts, user, job_request, answer)


async def _check_job(parts: Parts, request: Call, user: User, question: WhatIf) -> CheckedJob:
    """Return the job as the API server would store it.

    Raises:
        TokenNeeded: there is no token for the check, and the caller has not made it.
        KubeError: it is refused.
        Denied: the user may not create one there.
    """
    if question.judged:
        await _require_visible(parts, user, question)
        await parts.rights.require_creation(user, "gpujobs", question.namespace)
        return parse_checked_job(question.job)
    if not (token := authorization_of(request)):
        raise TokenNeeded(
            "the API server checks the job with the caller's token; without one, create it with "
            "dryRun=All yourself and send the returned spec with judged: true, as gpupack what-if "
            "does"
        )
    await _require_visible(parts, user, question)
    api = parts.api.on_behalf(token)
    return parse_judged_job(await judged(api, question.job, namespace=question.namespace))


async def _require_visible(parts: Parts, user: User, question: WhatIf) -> None:
    """Check permissions: an answer for other quotas would reveal a namespace's usage."""
    for number, each in enumerate(question.quotas):
        await parts.rights.require_namespace(user, "gpuquotas", each.namespace)
        for at, limit in enumerate(each.spec.gpus):
            lent = limit.lending_limit
            if lent is not None and lent > limit.nominal:
                field = f"quotas[{number}].spec.gpus[{at}].lendingLimit"
                raise CallInvalid(field, lent, f"set it to no more than nominal, {limit.nominal}")
    for number, name in enumerate(question.without_nodes):
        if NodeName(name) not in parts.model.ledger.cluster:
            raise CallInvalid(f"without_nodes[{number}]", name, "there is no such node with GPUs")


def _changes(question: WhatIf) -> Changes:
    return Changes(
        without_nodes=tuple(map(NodeName, question.without_nodes)),
        quotas={each.namespace: each.spec for each in question.quotas},
    )


async def _answer(parts: Parts, user: User, job_request: GangRequest, changes: Changes) -> Answer:
    model = parts.model
    return await parts.questions.answer(
        user,
        lambda: prepare_what_if(
            model.queue_copy, job_request, changes, quotas=model.quotas, decisions=model.decisions
        ),
        lambda copy: copy.what_if(job_request.job),
    )


def _not_queued(parts: Parts, why: NotQueued) -> Outcome:
    """Return the outcome of a job that does not enter the queue."""
    return Outcome(
        outcome="Never" if why.permanent else "Waits",
        reason=why.reason,
        message=why.message,
        workers=(),
        position=None,
        waiting=len(parts.model.queue_copy.observed.queue),
        estimated_wait_seconds=None,
        preempts=(),
        preempts_hidden=0,
        would_help=(),
    )


async def _outcome(parts: Parts, user: User, job_request: GangRequest, found: Answer) -> Outcome:
    wait = found.wait
    if wait is None:
        named, hidden = await named_and_hidden(parts, user, job_request.namespace, found.stopped)
        workers = _workers(parts, found)
        return Outcome(
            outcome="Starts",
            reason="PreemptionPending" if found.stopped else "Admitted",
            message=_start_message(workers, len(found.stopped)),
            workers=workers,
            position=None,
            waiting=found.waiting,
            estimated_wait_seconds=None if found.stopped else 0.0,
            preempts=tuple(named),
            preempts_hidden=hidden,
            would_help=(),
        )
    return Outcome(
        outcome="Never" if isinstance(wait.start, Never) else "Waits",
        reason=reason_of(wait),
        message=wait.message,
        workers=(),
        position=wait.position,
        waiting=found.waiting,
        estimated_wait_seconds=estimated_wait_seconds(parts, found),
        preempts=(),
        preempts_hidden=0,
        would_help=tuple(await would_help(parts, user, job_request.namespace, found)),
        start=start_view(wait.start),
        models=models_view(wait.models),
    )


def _workers(parts: Parts, found: Answer) -> tuple[WorkerView, ...]:
    """Return the workers' places; the GPUs of observed nodes are unknown."""
    ledger = parts.model.ledger
    placed = (
        [ledger.claims.allocation(each) for each in found.starts.places] if found.starts else []
    )
    return tuple(
        WorkerView(
            number,
            each.node,
            tuple(
                held_device(share, each.node, ledger.cluster)
                for share in claims.shares(each.placement)
            ),
        )
        for number, each in enumerate(placed)
    )


def _start_message(workers: Sequence[WorkerView], stopped: int) -> str:
    nodes = list(dict.fromkeys(each.node for each in workers))
    what = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    more = f" and {len(nodes) - MAX_NAMED_NODES} more" if len(nodes) > MAX_NAMED_NODES else ""
    where = f"{what} would be on {', '.join(nodes[:MAX_NAMED_NODES])}{more}"
    if not stopped:
        return where
    ends = "1 other has" if stopped == 1 else f"{stopped} others have"
    return f"{where}, once {ends} ended or moved for it"


MAX_NAMED_NODES: Final = 8
"""Maximum nodes in a sentence."""
