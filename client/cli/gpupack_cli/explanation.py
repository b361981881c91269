# SPDX-License-Identifier: Apache-2.0
"""A job's state in sentences."""

import datetime as dt
from collections.abc import Iterator, Sequence

from gpupack_cli import figures
from gpupack_cli.placed_workers import PlacedWorker
from gpupack_cli.text import plain
from gpupack_crds.gpujob_status import Attempt
from gpupack_crds.kinds import GpuJob
from gpupack_restapi.questions import Explanation, JobRef

SHOWN_NAMES = 5


def job_lines(
    job: GpuJob, more: Explanation | None, workers: Sequence[PlacedWorker] = ()
) -> Iterator[str]:
    """Yield lines: phase, reason, the queue, what would help, the workers, the attempts."""
    status = job.status
    reason, message = status.reason, status.message
    if more is not None and status.phase == "Pending":
        reason, message = more.reason or reason, more.message or message
    namespace, name = plain(job.metadata.namespace), plain(job.metadata.name)
    yield f"{namespace}/{name} is {status.phase}" + (
        f": {plain(reason)}" if reason and reason != status.phase else ""
    )
    if message:
        yield f"  {plain(message)}"
    if job.spec.suspend and not status.finished:
        yield f"  Resume it: gpupack resume -n {namespace} {name}"
    if more is not None:
        yield from _advice_lines(more, waits=status.phase == "Pending")
    if (request := status.nodes_request) and request.state:
        yield f"Node request: {request.state} {plain(request.message)}".rstrip()
    if workers:
        yield "Workers:"
        yield from (f"  {each.line}" for each in workers)
    if status.attempts:
        yield "Attempts:"
        yield from (f"  {_attempt(each)}" for each in status.attempts)


def pod_lines(
    title: str, condition: str, more: Explanation | None, *, is_queued: bool = True
) -> Iterator[str]:
    """Yield lines about a pod that waits; `condition`: the message of its condition."""
    if not is_queued:
        yield f"pod {plain(title)} has no node, and is not in gpupack's queue"
        yield f"  {plain(condition or 'no scheduler has handled it yet')}"
        return
    if more is None:
        yield f"pod {plain(title)} waits"
        yield f"  {plain(condition)}"
        return
    yield f"pod {plain(title)} waits: {plain(more.reason)}"
    yield f"  {plain(more.message or condition)}"
    yield from _advice_lines(more, waits=True)


def _advice_lines(more: Explanation, *, waits: bool) -> Iterator[str]:
    """Yield the place in the queue, and what would help."""
    if waits:
        yield from queue_lines(
            more.position,
            more.waiting,
            estimated_wait_seconds=more.estimated_wait_seconds,
            ahead=more.ahead,
        )
        if more.ahead_hidden:
            yield f"  {hidden_text(more.ahead_hidden)} {_is(more.ahead_hidden)} ahead of it"
        if more.fits_now:
            yield "  It would fit now; jobs ahead of it or quotas block it."
    if more.would_help:
        yield "What would help:"
        yield from (f"  - {plain(each)}" for each in more.would_help)


def queue_lines(
    position: int | None,
    waiting: int,
    *,
    estimated_wait_seconds: float | None,
    ahead: list[JobRef],
) -> Iterator[str]:
    """Yield a job's place in the queue, and its start estimate."""
    if position is not None:
        yield f"  {figures.queued(position, waiting)}"
    if ahead:
        names = ", ".join(each.text for each in ahead[:SHOWN_NAMES])
        more = f" and {len(ahead) - SHOWN_NAMES} more" if len(ahead) > SHOWN_NAMES else ""
        yield f"  Ahead of it: {plain(names)}{more}"
    if estimated_wait_seconds is not None:
        yield f"  Expected to start within {figures.duration(estimated_wait_seconds)}"


def hidden_text(count: int) -> str:
    """Return text for jobs that the caller may not see."""
    return f"{count} of {'another namespace' if count == 1 else 'other namespaces'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _attempt(attempt: Attempt) -> str:
    outcome = attempt.outcome or "running"
    parts = [f"{attempt.number}: {outcome}", _span(attempt)]
    if attempt.nodes:
        parts.append(f"on {plain(str(attempt.nodes))}")
    if attempt.reason:
        parts.append(plain(attempt.reason))
    return ", ".join(parts) + (f": {plain(attempt.message)}" if attempt.message else "")


def _span(attempt: Attempt) -> str:
    """Return a period: «2026-01-31T12:00:00Z to 2026-01-31T12:05:00Z (5m)»."""
    begun = plain(attempt.started_at)
    if attempt.finished_at is None:
        return f"since {begun}"
    ended = plain(attempt.finished_at)
    try:
        lasted = dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(begun)
    except (ValueError, TypeError):
        return f"{begun} to {ended}"
    return f"{begun} to {ended} ({figures.duration(lasted.total_seconds())})"
