# SPDX-License-Identifier: Apache-2.0
"""`gpupack logs`."""

import click

from gpupack_cli import written_names
from gpupack_cli.errors import NotThere, UsageWrong
from gpupack_cli.follower import MOST_LOGS
from gpupack_cli.log_sink import LogSink
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_cli.watching import watched_to_its_end
from gpupack_cli.worker_log import WorkerLog
from gpupack_cli.worker_pod import WorkerPod
from gpupack_crds import names
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kube import client, listing
from gpupack_kube.client import Api
from gpupack_kube.errors import Invalid, NotFound
from gpupack_kube.objects import Pod
from gpupack_kube.resources import PODS


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
    that are named.
    """
    wanted = frozenset(workers)
    if follow and attempt is not None:
        raise UsageWrong("--attempt is of a log that is not followed; leave out --follow")
    if follow:
        run(lambda: _follow(session, job, workers=wanted, tail=tail, raw=raw))
    else:
        run(lambda: _show(session, job, workers=wanted, attempt=attempt, tail=tail, raw=raw))


async def _follow(
    session: Session, name: str, *, workers: frozenset[int], tail: int | None, raw: bool
) -> None:
    async with session.kubernetes() as api:
        job = await api.get(GPUJOBS, name, namespace=await session.here(api))
        require_workers(job, workers)
        await watched_to_its_end(api, job, raw=raw, workers=workers, tail=tail)


async def _show(
    session: Session,
    name: str,
    *,
    workers: frozenset[int],
    attempt: int | None,
    tail: int | None,
    raw: bool,
) -> None:
    async with session.kubernetes() as api:
        job = await api.get(GPUJOBS, name, namespace=await session.here(api))
        require_workers(job, workers)
        pods = await _pods(api, job)
        wanted = attempt or max((each.attempt for each in pods), default=0)
        shown = chosen(pods, attempt=wanted, workers=workers)
        if not shown:
            raise NotThere(_nothing(job, attempt))
        sink = LogSink.of_stdout(raw=raw)

        async def _print(worker: WorkerPod) -> str:
            """Print a worker's log; answers why there is none."""
            prefix = f"[{worker.index}] " if len(shown) > 1 else ""
            log = WorkerLog(api, worker, sink, prefix=prefix, over=lambda: True, tail=tail)
            try:
                await log.show()
            except (Invalid, NotFound) as error:
                return f"worker {worker.index}: {error.said}"
            return ""

        missing = [why for each in shown if (why := await _print(each))]
        if len(missing) == len(shown):
            raise NotThere(f"nothing can be shown of {name}: {'; '.join(missing)}")
        for why in missing:
            note(f"not shown: {why}")


def require_workers(job: GpuJob, wanted: frozenset[int]) -> None:
    """Of workers that a job cannot have nothing would ever be shown.

    Raises:
        NotThere: it has fewer.
    """
    last = job.spec.workers - 1
    if max(wanted, default=0) > last:
        which = f"workers 0 to {last}" if last else "worker 0 alone"
        raise NotThere(f"{job.metadata.name} has {which}, no worker {max(wanted)}")


async def _pods(api: Api, job: GpuJob) -> list[WorkerPod]:
    selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={job.metadata.uid}"}
    pages = listing.pages(api, PODS, namespace=job.metadata.namespace, selectors=selectors)
    found = [client.decode(raw, Pod) async for page in pages for raw in page.items]
    return [WorkerPod.of(pod, job.spec) for pod in found]


def chosen(pods: list[WorkerPod], *, attempt: int, workers: frozenset[int]) -> list[WorkerPod]:
    """Those whose logs are shown, by worker."""
    of_it = [each for each in pods if each.attempt == attempt]
    if workers:
        of_it = [each for each in of_it if each.index in workers]
    elif len(of_it) > MOST_LOGS:
        of_it = [each for each in of_it if each.index == 0]
    return sorted(of_it, key=lambda each: each.index)


def _nothing(job: GpuJob, attempt: int | None) -> str:
    which = f"attempt {attempt} of " if attempt else ""
    status = job.status
    return (
        f"there are no pods of {which}{job.metadata.name}, which is {status.phase}"
        f"{f' ({status.reason})' if status.reason else ''}; `gpupack explain` says more, -f waits"
    )
