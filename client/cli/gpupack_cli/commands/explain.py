# SPDX-License-Identifier: Apache-2.0
"""`gpupack explain`."""

import click
from rich.text import Text

from gpupack_cli import written_names
from gpupack_cli.cluster_warnings import print_warnings
from gpupack_cli.errors import ObjectNotFound, PermissionDenied, RestUnavailable
from gpupack_cli.explanation import job_lines, pod_lines
from gpupack_cli.listing import list_objects
from gpupack_cli.namespaces import get_job
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_lines
from gpupack_cli.placed_pod import PlacedPod
from gpupack_cli.placed_workers import PlacedWorker, placed_workers
from gpupack_cli.session import Session, run
from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Refused
from gpupack_kubeclient.objects import Pod
from gpupack_kubeclient.resources import PODS
from gpupack_restapi.questions import Explanation

POD = "pod/"


@click.command(name="explain")
@click.argument("job", callback=written_names.job_or_pod)
@session_options(rest=True)
@output_option
def command(session: Session, job: str, *, output: Output) -> None:
    """Explain why JOB waits or how it ended, and what would help.

    pod/NAME is a standalone pod: for a pending one the same is shown, for a bound one its node, its
    GPUs and the time of the binding. The position and the advice come from the REST API; where it
    cannot be reached, the other data is shown.
    """
    if job.startswith(POD):
        run(lambda: _show_pod(session, job.removeprefix(POD), output=output))
    else:
        run(lambda: _show(session, job, output=output))


async def _show(session: Session, name: str, *, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = await session.current_namespace(api)
        job = await get_job(api, name, namespace)
        more = await _explain_by_rest(session, api, f"jobs/{namespace}/{name}/explain")
        workers = await _workers(api, job)
        if not output.document and not job.status.finished:
            await print_warnings(api, job.spec)
    if output.document:
        document = {"status": job.status, "explanation": more, "workers": workers}
        show_document(document, output)
        return
    show_lines(map(Text, job_lines(job, more, workers)))


async def _workers(api: Api, job: GpuJob) -> list[PlacedWorker]:
    """Return workers with their places; pods only for a caller that may list pods."""
    pods = list[Pod]()
    if job.status.attempt:
        selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={job.metadata.uid}"}
        try:
            pods = await list_objects(
                api, PODS, namespace=job.metadata.namespace, selectors=selectors
            )
        except Refused as error:
            note(f"without the names of pods: {error.said}")
    return list(placed_workers(job, pods))


async def _show_pod(session: Session, name: str, *, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = await session.current_namespace(api)
        pod = await api.get(PODS, name, namespace=namespace)
        if pod.spec.node_name:
            _show_placed(PlacedPod.of(pod), output=output)
            return
        try:
            more, is_queued = (
                await _explain_by_rest(session, api, f"pods/{namespace}/{name}/explain"),
                True,
            )
        except ObjectNotFound:
            more, is_queued = None, False
    if output.document:
        show_document({"explanation": more}, output)
        return
    messages = (each.message for each in pod.status.conditions if each.type == "PodScheduled")
    title, condition = f"{namespace}/{name}", next(messages, "")
    show_lines(map(Text, pod_lines(title, condition, more, is_queued=is_queued)))


def _show_placed(pod: PlacedPod, *, output: Output) -> None:
    if output.document:
        show_document({"placed": pod}, output)
    else:
        show_lines(map(Text, pod.lines))


async def _explain_by_rest(session: Session, api: Api, path: str) -> Explanation | None:
    try:
        async with session.rest(api) as rest:
            return await rest.get(path, Explanation)
    except (RestUnavailable, PermissionDenied) as error:
        note(f"without position and advice: {error}")
        return None
