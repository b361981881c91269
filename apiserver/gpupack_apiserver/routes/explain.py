# SPDX-License-Identifier: Apache-2.0
"""Why a GPUJob or a standalone pod waits, computed with the queue's own code on a copy."""

from typing import Final

from litestar import get
from litestar.datastructures import State

from gpupack_apiserver import problems
from gpupack_apiserver.errors import Missing
from gpupack_apiserver.holders import holder_view, pod_holds
from gpupack_apiserver.routes.jobs import OneName, OneNamespace
from gpupack_apiserver.routes.others import estimated_wait_seconds, named_and_hidden, would_help
from gpupack_apiserver.routes.parts import Call, Parts, parts_of
from gpupack_apiserver.start_view import models_view, start_view
from gpupack_httpserver.user import User
from gpupack_kubeclient import objects
from gpupack_queue import JobId, Now
from gpupack_queue.explain.reasons import NEXT_CYCLE
from gpupack_restapi import PREFIX
from gpupack_restapi.questions import Explanation
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.planning import reason_of
from gpupack_scheduler.queueing.pending.request import job_id
from gpupack_scheduler.queueing.what_if import prepare_explain

_ON_A_NODE: Final = frozenset({claims.State.LANDED, claims.State.BOUND, claims.State.FINISHED})


@get(
    f"{PREFIX}/jobs/{{namespace:str}}/{{name:str}}/explain",
    tags=["questions"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def explain(
    request: Call, state: State, namespace: OneNamespace, name: OneName
) -> Explanation:
    """Explain why a GPUJob waits, and what would help."""
    parts = parts_of(state)
    user, job = await parts.find_job(request, namespace, name)
    queue_copy, status = parts.model.queue_copy, job.status
    queue_copy.follow()
    attempt = queue_copy.attempt(job.metadata.uid)
    if attempt is None:
        return Explanation(
            phase=status.phase,
            reason=status.reason,
            message=queue_copy.obstacle(job.metadata.uid) or status.message,
            waiting=len(queue_copy.observed.queue),
        )
    return await _explain_queued(parts, user, namespace, job_id(attempt), status.phase)


@get(
    f"{PREFIX}/pods/{{namespace:str}}/{{name:str}}/explain",
    tags=["questions"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def explain_pod(
    request: Call, state: State, namespace: OneNamespace, name: OneName
) -> Explanation:
    """Explain why a standalone pod waits, or return the node and GPUs of a bound pod."""
    parts = parts_of(state)
    user = await parts.authenticate(request)
    await parts.rights.require_namespace(user, "pods", namespace)
    queue_copy = parts.model.queue_copy
    queue_copy.follow()
    pod = _find_gated(parts, namespace, name)
    if pod is None:
        return _explain_placed(parts, namespace, name)
    job = queue_copy.observed.pending_id(pod.metadata.uid)
    if job not in queue_copy.observed.queue.state.pending:
        return Explanation(
            phase="Pending",
            reason=queue_copy.observed.obstacle_reason(pod.metadata.uid),
            message=queue_copy.observed.obstacle_of_pod(pod.metadata.uid),
            waiting=len(queue_copy.observed.queue),
        )
    return await _explain_queued(parts, user, namespace, job, "Pending")


def _find_gated(parts: Parts, namespace: str, name: str) -> objects.Pod | None:
    gated = parts.model.ledger.pods.gated.values()
    return next((pod for pod in gated if pod.key == (namespace, name)), None)


def _explain_placed(parts: Parts, namespace: str, name: str) -> Explanation:
    """Return the place of a bound pod; raises Missing."""
    model = parts.model
    pods = model.ledger.claims.pods.values()
    found = (pod for pod in pods if (pod.namespace, pod.name) == (namespace, name))
    pod = next((pod for pod in found if pod.state in _ON_A_NODE), None)
    if pod is None:
        raise Missing(f"no pod {namespace}/{name} waits in the queue or has a node")
    node = str(pod.placement.node)
    held = pod_holds(pod, model.ledger, model.jobs.by_key)
    return Explanation(
        phase="Scheduled",
        reason="Scheduled",
        message=f"the pod is on node {node}",
        waiting=len(model.queue_copy.observed.queue),
        node=node,
        holds=[holder_view(each, model.ledger) for each in held],
    )


async def _explain_queued(
    parts: Parts, user: User, own: str, job: JobId, phase: str
) -> Explanation:
    """Explain a job or pod in the queue."""
    queue_copy = parts.model.queue_copy
    found = await parts.questions.answer(
        user, lambda: prepare_explain(queue_copy), lambda copy: copy.explain(job)
    )
    named, hidden = await named_and_hidden(parts, user, own, found.ahead)
    wait = found.wait
    return Explanation(
        phase=phase,
        reason=reason_of(wait) if wait else "AdmissionPending",
        message=wait.message if wait else NEXT_CYCLE,
        position=found.position,
        waiting=found.waiting,
        ahead=named,
        ahead_hidden=hidden,
        estimated_wait_seconds=estimated_wait_seconds(parts, found),
        fits_now=found.fits_now,
        would_help=await would_help(parts, user, own, found),
        start=start_view(wait.start if wait else Now()),
        models=models_view(wait.models if wait else None),
    )
