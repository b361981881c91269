# SPDX-License-Identifier: Apache-2.0
"""`gpupack logs`."""

import dataclasses

import click

from gpupack_cli import written_names
from gpupack_cli.chosen_workers import ChosenWorkers
from gpupack_cli.errors import ObjectNotFound, UsageInvalid
from gpupack_cli.log_sink import LogSink
from gpupack_cli.namespaces import get_job
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.saved_log import last_lines, saved_log
from gpupack_cli.session import Session, run
from gpupack_cli.watching import follow_to_end
from gpupack_cli.worker import Worker, workers_of
from gpupack_cli.worker_log import WorkerLog
from gpupack_crds import indices, names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient import client, listing
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Invalid, NotFound
from gpupack_kubeclient.objects import Pod
from gpupack_kubeclient.resources import PODS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `logs`.

    Attributes:
        workers: workers to show; empty: all, or of many the first.
        attempt: attempt to show; None: the last one.
        tail: number of last lines; None: all.
        raw: print lines unchanged, on a terminal too.
    """

    workers: frozenset[int]
    attempt: int | None
    tail: int | None
    raw: bool


@click.command(name="logs")
@click.argument("job", callback=written_names.name)
@session_options()
@click.option(
    "-f", "--follow", is_flag=True, help="Follow until the job ends, and exit with its status."
)
@click.option(
    "--worker", "workers", multiple=True, type=click.IntRange(0), help="Show only this worker."
)
@click.option("--attempt", type=click.IntRange(1), help="Attempt (default: the last).")
@click.option("--tail", type=click.IntRange(0), help="Number of last lines to show.")
@click.option("--raw", is_flag=True, help="Print logs unchanged, with escape sequences.")
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
    """Show the logs of the workers of JOB.

    Up to eight workers are all shown, each line with its worker. Of a larger job the first worker
    is shown, or those of --worker. Of a stopped attempt the saved last lines are shown.
    """
    wanted = frozenset(workers)
    if follow and attempt is not None:
        raise UsageInvalid("--attempt excludes --follow; leave out one of them")
    if follow:
        run(lambda: _follow(session, job, workers=wanted, tail=tail, raw=raw))
    else:
        options = LogOptions(workers=wanted, attempt=attempt, tail=tail, raw=raw)
        run(lambda: _show(session, job, options))


async def _follow(
    session: Session, name: str, *, workers: frozenset[int], tail: int | None, raw: bool
) -> None:
    async with session.kubernetes() as api:
        job = await get_job(api, name, await session.current_namespace(api))
        require_workers(job, workers)
        await follow_to_end(api, job, raw=raw, workers=workers, tail=tail)


async def _show(session: Session, name: str, options: LogOptions) -> None:
    async with session.kubernetes() as api:
        job = await get_job(api, name, await session.current_namespace(api))
        require_workers(job, options.workers)
        workers = await _workers(api, job)
        newest = max((each.attempt for each in workers), default=0)
        # A stopped attempt has no pods, and is newer than a failed one.
        last = max(newest, job.status.attempt)
        for attempt in (options.attempt,) if options.attempt else sorted({last, newest})[::-1]:
            pods = {each.index: each for each in workers if each.attempt == attempt}
            if await _show_attempt(api, job, attempt, pods, options):
                return
        raise ObjectNotFound(no_log_text(job, options.attempt))


async def _show_attempt(
    api: Api, job: GpuJob, attempt: int, workers: dict[int, Worker], options: LogOptions
) -> bool:
    """Print the logs of an attempt's pods and of those deleted; False: there are none."""
    chosen = ChosenWorkers.of(job.spec, options.workers)
    pods = {index: workers[index] for index in sorted(workers.keys() & chosen.indices)}
    gone = chosen.expected(job, attempt) - pods.keys()
    saved = await _saved_texts(api, job, attempt) if gone or not pods else {}
    if pods:
        await _print_all(
            api, job, pods, {i: saved[i] for i in gone & saved.keys()}, options, chosen
        )
        if without_log := gone - saved.keys():
            absent = "no pod; it was deleted, or is not created yet"
            note(f"not shown: {_named(without_log)}: {absent}")
    elif saved:
        await _print_saved(saved, attempt, options, chosen)
    return bool(pods or saved)


async def _saved_texts(api: Api, job: GpuJob, attempt: int) -> dict[int, str]:
    """Return the last lines of this attempt's workers whose pods were deleted, by index."""
    saved = await saved_log(api, job)
    return saved.texts if saved is not None and saved.attempt == attempt else {}


async def _print_saved(
    saved: dict[int, str], attempt: int, options: LogOptions, chosen: ChosenWorkers
) -> None:
    texts = {
        worker: text
        for worker, text in saved.items()
        if not options.workers or worker in options.workers
    }
    if not texts:
        raise ObjectNotFound(f"no log of these workers was saved for attempt {attempt}")
    note(f"attempt {attempt} was stopped; these are the last lines of its workers")
    sink = LogSink.of_stdout(raw=options.raw)
    for worker, text in texts.items():
        prefix = f"[{worker}] " if chosen.prefix_lines or len(texts) > 1 else ""
        await _write_saved(sink, text, prefix=prefix, tail=options.tail)


async def _write_saved(sink: LogSink, text: str, *, prefix: str, tail: int | None) -> None:
    for line in last_lines(text, tail):
        await sink.write(prefix, line)


async def _print_all(
    api: Api,
    job: GpuJob,
    pods: dict[int, Worker],
    saved: dict[int, str],
    options: LogOptions,
    chosen: ChosenWorkers,
) -> None:
    """Print the logs of pods and the saved lines of other workers, by index; name what is missing.

    A pod may be deleted after the list: its last lines may be saved, too.
    """
    sink, missing = LogSink.of_stdout(raw=options.raw), list[str]()
    texts, shown = dict(saved), sorted(pods.keys() | saved.keys())
    for index in shown:
        prefix, tail = chosen.prefix(index), options.tail
        try:
            if worker := pods.get(index):
                await WorkerLog(
                    api, worker, sink, prefix=prefix, is_over=lambda: True, tail=tail
                ).show()
                continue
        except Invalid as error:
            missing.append(f"worker {index}: {error.said}")
            continue
        except NotFound as error:
            texts |= await _saved_texts(api, job, pods[index].attempt)
            if index not in texts:
                missing.append(f"worker {index}: {error.said}")
                continue
        note(f"the pod of worker {index} was deleted; these are its last lines")
        await _write_saved(sink, texts[index], prefix=prefix, tail=tail)
    if len(missing) == len(shown):
        raise ObjectNotFound(f"nothing can be shown of {job.metadata.name}: {'; '.join(missing)}")
    for why in missing:
        note(f"not shown: {why}")


def _named(workers: frozenset[int]) -> str:
    """Return text such as «worker 1», «workers 1-3,6»."""
    return f"worker{'s' if len(workers) > 1 else ''} {indices.written(workers)}"


def require_workers(job: GpuJob, wanted: frozenset[int]) -> None:
    """Check that the job can have these workers; for others no log would ever appear.

    Raises:
        ObjectNotFound: it has fewer.
    """
    last = job.spec.workers - 1
    if max(wanted, default=0) > last:
        which = f"workers 0 to {last}" if last else "only worker 0"
        raise ObjectNotFound(f"{job.metadata.name} has {which}, and no worker {max(wanted)}")


async def _workers(api: Api, job: GpuJob) -> list[Worker]:
    """Return all workers with a pod, of all attempts, by index."""
    selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={job.metadata.uid}"}
    pages = listing.pages(api, PODS, namespace=job.metadata.namespace, selectors=selectors)
    pods = [client.decode(raw, Pod) async for page in pages for raw in page.items]
    found = [worker for pod in pods for worker in workers_of(pod, job.spec)]
    return sorted(found, key=lambda each: each.index)


def no_log_text(job: GpuJob, attempt: int | None) -> str:
    """Return why an attempt has no logs."""
    status = job.status
    is_state = f"{status.phase}{f' ({status.reason})' if status.reason else ''}"
    if not status.attempt:
        return f"{job.metadata.name} is {is_state} and has not started yet; -f waits for it"
    if attempt is not None and attempt > status.attempt:
        return f"{job.metadata.name} has no attempt {attempt}; its last one is {status.attempt}"
    which = attempt or status.attempt
    return (
        f"attempt {which} of {job.metadata.name} ({is_state}) has no pods and no saved log; only "
        "the pods of the last two failed attempts and of the last attempt of a finished job are "
        "kept, and the last lines of the last stopped attempt"
    )
