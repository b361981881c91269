# SPDX-License-Identifier: Apache-2.0
"""GPUJobs, in the namespaces that the caller may see."""

from collections.abc import Collection
from operator import itemgetter
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import PathParameter, QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.job_views import attempt_views, job_view, worker_views
from gpupack_apiserver.patterns import DOTTED_NAME, KEY, require_cursor
from gpupack_apiserver.pod_workers import pod_names
from gpupack_apiserver.queue_cursor import QueueCursor
from gpupack_apiserver.queue_rows import waiting_jobs, waiting_pods
from gpupack_apiserver.rights import sees_nowhere
from gpupack_apiserver.routes.parts import Call, Parts, parts_of
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.gpujob_status import Phase
from gpupack_httpserver.user import User
from gpupack_restapi import PREFIX
from gpupack_restapi.jobs import JobDetail, Jobs, Queue
from gpupack_restapi.patterns import NAME, NAME_OR_EMPTY

MAX_LISTED: Final = 5000


Namespace = Annotated[
    str,
    QueryParameter(
        description="Only this namespace; empty: all that the caller may see.",
        max_length=63,
        pattern=NAME_OR_EMPTY,
    ),
]
OneNamespace = Annotated[
    str,
    PathParameter(description="Namespace of the object.", max_length=63, pattern=NAME),
]
OneName = Annotated[
    str, PathParameter(description="Name of the object.", max_length=253, pattern=DOTTED_NAME)
]
PhaseFilter = Annotated[Phase | None, QueryParameter(description="Only jobs in this phase.")]
Limit = Annotated[int, QueryParameter(description="Maximum entries.", ge=1, le=MAX_LISTED)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=400),
]


class Visible(msgspec.Struct, frozen=True):
    """The jobs that a caller may see, and whether it may list any."""

    user: User
    jobs: list[ShownJob]
    may_list: bool


@get(f"{PREFIX}/jobs", tags=["jobs"], responses=problems.REFUSALS)
async def jobs(
    request: Call,
    state: State,
    namespace: Namespace = "",
    phase: PhaseFilter = None,
    limit: Limit = 200,
    after: After = "",
) -> Jobs:
    """List GPUJobs."""
    require_cursor(after, KEY)
    visible = await _visible(request, state, namespace)
    wanted = [
        job
        for job in visible.jobs
        if (phase is None or job.status.phase == phase) and _cursor(job) > after
    ]
    wanted.sort(key=_cursor)
    shown = wanted[:limit]
    return Jobs(
        tuple(job_view(each) for each in shown),
        next=_cursor(shown[-1]) if len(wanted) > limit else "",
        may_list=visible.may_list,
    )


@get(
    f"{PREFIX}/jobs/{{namespace:str}}/{{name:str}}",
    tags=["jobs"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def job(request: Call, state: State, namespace: OneNamespace, name: OneName) -> JobDetail:
    """Show one GPUJob."""
    parts = parts_of(state)
    user, found = await parts.find_job(request, namespace, name)
    ledger = parts.model.ledger
    may_list = await parts.rights.may_list(user, "pods", namespace)
    pods = pod_names(ledger, found) if may_list else {}
    workers = worker_views(found, ledger.cluster, pods)
    return JobDetail(job_view(found), tuple(attempt_views(found)), tuple(workers))


@get(f"{PREFIX}/queue", tags=["jobs"], responses=problems.REFUSALS)
async def queue(
    request: Call, state: State, namespace: Namespace = "", limit: Limit = 200, after: After = ""
) -> Queue:
    """List pending GPUJobs and standalone pods, and why they wait."""
    place, parts = QueueCursor.read(after) if after else None, parts_of(state)
    visible = await _visible(request, state, namespace)
    pods_of = await _pods_of(parts, visible.user, namespace)
    positions = parts.model.positions.by_job()
    waiting = [
        *waiting_jobs(parts.model, visible.jobs, positions),
        *waiting_pods(parts.model, pods_of, positions),
    ]
    places = sorted(((QueueCursor.of(each), each) for each in waiting), key=itemgetter(0))
    wanted = [each for each in places if place is None or each[0] > place]
    return Queue(
        tuple(each for _, each in wanted[:limit]),
        total=len(waiting),
        may_list=visible.may_list,
        next=wanted[limit - 1][0].text if len(wanted) > limit else "",
    )


async def _visible(request: Call, state: State, namespace: str) -> Visible:
    parts = parts_of(state)
    user = await parts.authenticate(request)
    known = parts.model.jobs.by_key
    there = {key[0] for key in known}
    seen = set(await parts.rights.visible(user, "gpujobs", namespace=namespace, existing=there))
    jobs = [job for key, job in known.items() if key[0] in seen]
    return Visible(user, jobs, may_list=not sees_nowhere(user, seen, there))


async def _pods_of(parts: Parts, user: User, namespace: str) -> Collection[str]:
    """Return the namespaces in which the caller may see waiting pods; it may see only jobs."""
    there = {pod.metadata.namespace for pod in parts.model.ledger.pods.gated.values()}
    if namespace:
        allowed = namespace in there and await parts.rights.may_list(user, "pods", namespace)
        return {namespace} if allowed else ()
    if not there:
        return ()
    return set(await parts.rights.visible(user, "pods", namespace="", existing=there))


def _cursor(job: ShownJob) -> str:
    return "/".join(job.key)
