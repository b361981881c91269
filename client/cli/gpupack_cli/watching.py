# SPDX-License-Identifier: Apache-2.0
"""Following a job for a user: Ctrl-C, and the exit status.

Ctrl-C alone never stops a job, since it may have run for days. On a terminal there is a prompt;
elsewhere, or the second time, the command detaches. On SIGTERM it also detaches: a shell or a CI
system ends the command with it, and not the job.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Final

import click

from gpupack_cli.errors import INTERRUPTED, TERMINATED, JobFailed
from gpupack_cli.follower import Follower
from gpupack_cli.log_sink import LogSink
from gpupack_cli.notes import note
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound


class Interrupts(asyncio.Event):
    """An event that Ctrl-C sets, and SIGTERM, after which there is no prompt.

    Attributes:
        status: exit status.
    """

    status = INTERRUPTED

    def terminate(self) -> None:
        """Record SIGTERM."""
        self.status = TERMINATED
        self.set()


QUESTION: Final = (
    "\nThe job continues. [d]etach, [s]top and delete it, or [c]ontinue to follow? [d] "
)


async def follow_to_end(
    api: Api,
    job: GpuJob,
    *,
    raw: bool = False,
    workers: frozenset[int] = frozenset(),
    tail: int | None = None,
) -> None:
    """Follow the job.

    Raises:
        JobFailed: it failed, was stopped, or the user detached, with the exit status.
        KubeError: it may not be followed.
    """
    sink = LogSink.of_stdout(raw=raw)
    follower = Follower(api, job, sink, workers=workers, tail=tail)
    following = asyncio.create_task(_follow(follower))
    async with _interrupts() as interrupted:
        try:
            await _until_ended(api, follower, sink, following, interrupted)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    raise_failure(following.result(), follower.status)


def raise_failure(job: GpuJob, status: int) -> None:
    """Raise JobFailed where the job failed.

    Raises:
        JobFailed: it failed.
    """
    if job.status.phase != "Failed":
        return
    why = job.status.message or job.status.reason or "it failed"
    raise JobFailed(f"{job.metadata.name} failed: {why}", status=status or 1)


async def _follow(follower: Follower) -> GpuJob:
    """Follow the job; raise the first error, not a group of all."""
    try:
        return await follower.follow()
    except* NotFound as group:
        raise JobFailed(str(group.exceptions[0]), status=1) from group


async def _until_ended(
    api: Api,
    follower: Follower,
    sink: LogSink,
    following: asyncio.Task[GpuJob],
    interrupted: Interrupts,
) -> None:
    while not following.done():
        waiting = asyncio.create_task(interrupted.wait())
        await asyncio.wait({following, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if following.done() or not interrupted.is_set():
            break
        interrupted.clear()
        sink.go.clear()
        choice = await _ask_user(interrupted)
        if choice == "s":
            await _stop(api, follower.job)
        if choice == "d":
            raise _detached(follower.job, interrupted.status)
        sink.go.set()


async def _ask_user(interrupted: Interrupts) -> str:
    """Prompt and return d, s or c; d without a terminal, or on a second Ctrl-C."""
    asked = interrupted.status == INTERRUPTED
    if not (asked and sys.stdin.isatty() and sys.stderr.isatty()):
        return "d"
    loop, line = asyncio.get_running_loop(), asyncio.Queue[str]()
    click.echo(QUESTION, err=True, nl=False)
    loop.add_reader(sys.stdin.fileno(), lambda: line.put_nowait(sys.stdin.readline()))
    tasks = {asyncio.create_task(line.get()), asyncio.create_task(interrupted.wait())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(sys.stdin.fileno())
        for task in tasks:
            task.cancel()
    answers = [task.result() for task in done if isinstance(task.result(), str)]
    said = str(answers[0]).strip().lower()[:1] if answers else "d"
    return said if said in {"s", "c"} else "d"


async def _stop(api: Api, job: GpuJob) -> None:
    metadata = job.metadata
    with contextlib.suppress(NotFound):
        await api.delete(GPUJOBS, metadata.name, namespace=metadata.namespace, uid=metadata.uid)
    note(f"gpujob {metadata.namespace}/{metadata.name} deleted")
    raise JobFailed("", status=INTERRUPTED)


def _detached(job: GpuJob, status: int) -> JobFailed:
    where = f"-n {job.metadata.namespace} {job.metadata.name}"
    note(f"detached; the job continues. Follow it: gpupack logs -f {where}")
    note(f"Stop it: kubectl delete gpujob {where}")
    return JobFailed("", status=status)


@contextlib.asynccontextmanager
async def _interrupts() -> AsyncGenerator[Interrupts]:
    """Yield an event that Ctrl-C and SIGTERM set inside the context."""
    loop, interrupted = asyncio.get_running_loop(), Interrupts()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    loop.add_signal_handler(signal.SIGTERM, interrupted.terminate)
    try:
        yield interrupted
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
