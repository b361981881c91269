# SPDX-License-Identifier: Apache-2.0
"""`gpupack logs`."""

import dataclasses

import click

from gpupack_cli import written_names
from gpupack_cli.chosen_workers import ChosenWorkers
from gpupack_cli.errors import NotThere, UsageWrong
from gpupack_cli.log_sink import LogSink
from gpupack_cli.namespaces import job_named
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.saved_log import SavedLog, last_lines, saved_log
from gpupack_cli.session import Session, run
from gpupack_cli.watching import watched_to_its_end
from gpupack_cli.worker import Worker, workers_of
from gpupack_cli.worker_log import WorkerLog
from gpupack_crds import indices, names
from gpupack_crds.kinds import GpuJob
from gpupack_kube import client, listing
from gpupack_kube.client import Api
from gpupack_kube.errors import Invalid, NotFound
from gpupack_kube.objects import Pod
from gpupack_kube.resources import PODS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be shown.

    Attributes:
        workers: empty: of all, or where they are many of the first.
        attempt: None: of the last one.
        tail: so many of the last lines; None: all.
        raw: as they are, on a terminal too.
    """

    workers: frozenset[int]
    attempt: int | None
    tail: int | None
    raw: bool


@click.command(name="logs")
@click.argument("job", callback=written_names.name)
@session_options()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends, and end as it does.")
@click.option("--worker", "workers", multiple=True, type=click.IntRange(0), help="Of this one.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt; the last, if absent.")
@click.option("--tail", type=click.IntRange(0), help="The last lines alone, so many.")
@click.option("--raw", is_flag=True, help="As they are, escape sequences too.")
def command(  # noqa: PLR0913 - an argument for each option
    session: Session,
    job: str,
    *,
    follow: bool,
    workers: tuple[int, ...],
    attempt: int | None,
    tail: int | None,
    raw: bool,
) -> None:
    """Show what the workers of JOB print.

    Of up to eight workers all are shown, each line with its worker; of more the first, or those
    that are named. Of an attempt that was stopped the last lines are shown, as they were saved.
    """
    wanted = frozenset(workers)
    if follow and attempt is not None:
        raise UsageWrong("--attempt is of a log that is not followed; leave out --follow")
    if follow:
        run(lambda: _follow(session, job, workers=wanted, tail=tail, raw=raw))
    else:
        asked = Wanted(workers=wanted, attempt=attempt, tail=tail, raw=raw)
        run(lambda: _show(session, job, asked))


async def _follow(
    session: Session, name: str, *, workers: frozenset[int], tail: int | None, raw: bool
) -> None:
    async with session.kubernetes() as api:
        job = await job_named(api, name, await session.here(api))
        require_workers(job, workers)
        await watched_to_its_end(api, job, raw=raw, workers=workers, tail=tail)


async def _show(session: Session, name: str, wanted: Wanted) -> None:
    async with session.kubernetes() as api:
        job = await job_named(api, name, await session.here(api))
        require_workers(job, wanted.workers)
        chosen = ChosenWorkers.of(job.spec, wanted.workers)
        try:
            await _show_attempt(api, job, wanted, chosen)
        except _PodsDeletedError:
            # The pods were deleted after the list: the second list shows which log is left.
            await _show_attempt(api, job, wanted, chosen)


async def _show_attempt(api: Api, job: GpuJob, wanted: Wanted, chosen: ChosenWorkers) -> None:
    """Print the logs of an attempt's pods, or the saved ones of an attempt that was stopped.

    Raises:
        NotThere: there are neither.
    """
    workers = await _workers(api, job)
    newest = max((each.attempt for each in workers), default=0)
    attempt = wanted.attempt or newest
    shown = [each for each in workers if each.attempt == attempt]
    shown = [each for each in shown if each.index in chosen.indices]
    gone = chosen.expected(job, attempt) - {each.index for each in shown}
    # The pods of a stopped attempt are deleted one by one, after their logs were saved. An
    # attempt without pods is newer than one that failed.
    if gone or not shown or (wanted.attempt is None and newest < job.status.attempt):
        saved = await saved_log(api, job)
        if saved is not None and saved.attempt == (wanted.attempt or job.status.attempt):
            await _print_saved(saved, wanted, chosen)
            return
    if not shown:
        raise NotThere(nothing(job, wanted.attempt))
    await _print_all(api, job, shown, wanted, chosen)
    if gone:
        note(f"not shown: {_named(gone)}: no pod; it was deleted, or is not created yet")


class _PodsDeletedError(NotThere):
    """All pods of an attempt were deleted between the list and the request for their logs."""


async def _print_saved(saved: SavedLog, wanted: Wanted, chosen: ChosenWorkers) -> None:
    texts = {
        worker: text
        for worker, text in saved.texts.items()
        if not wanted.workers or worker in wanted.workers
    }
    if not texts:
        raise NotThere(f"of attempt {saved.attempt} no log of these workers was saved")
    note(f"attempt {saved.attempt} was stopped; these are the last lines of its workers")
    sink = LogSink.of_stdout(raw=wanted.raw)
    for worker, text in texts.items():
        prefix = f"[{worker}] " if chosen.prefix_lines or len(texts) > 1 else ""
        for line in last_lines(text, wanted.tail):
            await sink.write(prefix, line)


async def _print_all(
    api: Api, job: GpuJob, shown: list[Worker], wanted: Wanted, chosen: ChosenWorkers
) -> None:
    """Print the logs one after the other; those that there are not are named."""
    sink, missing, deleted = LogSink.of_stdout(raw=wanted.raw), list[str](), 0
    for worker in shown:
        prefix = chosen.prefix(worker.index)
        log = WorkerLog(api, worker, sink, prefix=prefix, over=lambda: True, tail=wanted.tail)
        try:
            await log.show()
        except (Invalid, NotFound) as error:
            missing.append(f"worker {worker.index}: {error.said}")
            deleted += isinstance(error, NotFound)
    if len(missing) == len(shown):
        kind = _PodsDeletedError if deleted == len(shown) else NotThere
        raise kind(f"nothing can be shown of {job.metadata.name}: {'; '.join(missing)}")
    for why in missing:
        note(f"not shown: {why}")


def _named(workers: frozenset[int]) -> str:
    """«worker 1», «workers 1-3,6»."""
    return f"worker{'s' if len(workers) > 1 else ''} {indices.written(workers)}"


def require_workers(job: GpuJob, wanted: frozenset[int]) -> None:
    """Of workers that a job cannot have nothing would ever be shown.

    Raises:
        NotThere: it has fewer.
    """
    last = job.spec.workers - 1
    if max(wanted, default=0) > last:
        which = f"workers 0 to {last}" if last else "worker 0 alone"
        raise NotThere(f"{job.metadata.name} has {which}, no worker {max(wanted)}")


async def _workers(api: Api, job: GpuJob) -> list[Worker]:
    """All that have a pod, of all attempts, by index."""
    selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={job.metadata.uid}"}
    pages = listing.pages(api, PODS, namespace=job.metadata.namespace, selectors=selectors)
    pods = [client.decode(raw, Pod) async for page in pages for raw in page.items]
    found = [worker for pod in pods for worker in workers_of(pod, job.spec)]
    return sorted(found, key=lambda each: each.index)


def nothing(job: GpuJob, attempt: int | None) -> str:
    """Where the logs of an attempt went that has no pods."""
    status = job.status
    is_state = f"{status.phase}{f' ({status.reason})' if status.reason else ''}"
    if not status.attempt:
        return f"{job.metadata.name} is {is_state} and has not started yet; -f waits for it"
    if attempt is not None and attempt > status.attempt:
        return f"{job.metadata.name} has no attempt {attempt}; its last one is {status.attempt}"
    which = attempt or status.attempt
    return (
        f"attempt {which} of {job.metadata.name}, which is {is_state}, has no pods any more, and "
        "no log of it was saved; kept are the pods of the last two failed attempts and of the "
        "attempt that ended the job, and the last lines of the last attempt that was stopped"
    )
