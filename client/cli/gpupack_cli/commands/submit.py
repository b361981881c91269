# SPDX-License-Identifier: Apache-2.0
"""`gpupack submit`."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from gpupack_cli import written_names
from gpupack_cli.cluster_warnings import print_warnings
from gpupack_cli.durations import duration_option
from gpupack_cli.errors import InputInvalid, UsageInvalid
from gpupack_cli.job_manifest import JobOptions, as_yaml, build_manifests, owner_patch
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.revising import revise
from gpupack_cli.session import Session, run
from gpupack_cli.watching import follow_to_end
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import AlreadyExists, KubeError, Refused, Unreachable
from gpupack_kubeclient.objects import Json, Object
from gpupack_kubeclient.resources import CONFIG_MAPS

NEW_JOB_OPTIONS: Final = frozenset(
    {
        "name",
        "gpus",
        "share",
        "mig",
        "workers",
        "pod_per_worker",
        "models",
        "model_fallback_seconds",
        "min_memory",
        "priority_class",
        "max_restarts",
        "deadline_seconds",
        "ttl_seconds",
        "dry_run",
    }
)
EXCLUDED_BY_SHARE: Final = ("gpus", "mig")
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    name="submit",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@session_options()
@click.option("--image", required=True, envvar="GPUPACK_IMAGE", help="Container image.")
@click.option(
    "--name",
    default="",
    callback=written_names.new_job_or_empty,
    help="Job name (default: derived from the command).",
)
@click.option(
    "--on", callback=written_names.name, help="Job or allocation on whose GPUs the command runs."
)
@click.option(
    "--gpus",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="GPUs of each worker, or MIG slices with --mig.",
)
@click.option("--share", default="", help="Share of one GPU, such as 25,10Gi.")
@click.option(
    "--mig", default="", help="MIG profile of the slices that --gpus counts, such as 1g.18gb."
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Number of workers.",
)
@click.option(
    "--pod-per-worker", is_flag=True, help="Create one pod for each worker instead of shared pods."
)
@click.option("--model", "models", multiple=True, help="Accepted GPU model, such as H100.")
@click.option(
    "--model-fallback",
    "model_fallback_seconds",
    callback=duration_option(min_seconds=10),
    help="Pending time after which the next --model is accepted, such as 10m (default: all at "
    "once).",
)
@click.option("--min-memory", default="", help="Minimum memory of each GPU, such as 40Gi.")
@click.option("--priority-class", default="", help="PriorityClass of the job.")
@click.option(
    "--max-restarts",
    default=0,
    type=click.IntRange(0, 100),
    help="Maximum restarts after failures.",
)
@click.option(
    "--deadline",
    "deadline_seconds",
    callback=duration_option(min_seconds=1),
    help="Deadline over all attempts, such as 90s or 2h.",
)
@click.option(
    "--ttl",
    "ttl_seconds",
    callback=duration_option(),
    help="Time after which the finished job is deleted, such as 30m.",
)
@click.option(
    "--env", "variables", multiple=True, help="Environment variable, as NAME=VALUE; each name once."
)
@click.option(
    "--script", "scripts", multiple=True, type=FILE, help="File to copy into the working folder."
)
@click.option("--non-root", is_flag=True, help="Require that the container does not run as root.")
@click.option("--dry-run", is_flag=True, help="Print the manifest without creating the job.")
@click.option("--detach", is_flag=True, help="Print the job's name and exit.")
@click.option("--raw", is_flag=True, help="Print logs unchanged, with escape sequences.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    session: Session, *, on: str | None, dry_run: bool, detach: bool, raw: bool, **wanted: Any
) -> None:
    """Run COMMAND as a GPUJob, show its output, and exit with its status.

    Write `--` before the command: `gpupack submit --gpus 2 --image I -- torchrun train.py`. --gpus
    counts the GPUs of each worker. Scripts are copied into the command's working folder. Ctrl-C
    prompts whether to detach or to end the job; a second Ctrl-C detaches. `--on JOB` creates no
    job: it stops the program of JOB, and runs COMMAND on the same GPUs.
    """
    _require_one_size()
    if on:
        _exclude_options("on", NEW_JOB_OPTIONS)
    run(
        lambda: _submit(
            session, JobOptions(**wanted), on=on, dry_run=dry_run, detach=detach, raw=raw
        )
    )


def _require_one_size() -> None:
    """Refuse an empty size, and options that a share excludes; raises UsageInvalid.

    --gpus counts the slices of --mig.
    """
    for name in ("share", "mig"):
        if _is_given(name) and not click.get_current_context().params[name]:
            raise UsageInvalid(f"--{name} is empty; give a value, or leave the option out")
    excluded = [f"--{each}" for each in EXCLUDED_BY_SHARE if _is_given(each)]
    if _is_given("share") and excluded:
        raise UsageInvalid(
            f"--share excludes {' and '.join(excluded)}: give a part of one GPU, or "
            "whole GPUs or MIG slices"
        )


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def _exclude_options(name: str, others: frozenset[str]) -> None:
    """Refuse options for a new job together with this one; raises UsageInvalid."""
    context = click.get_current_context()
    for other in sorted(others):
        if _is_given(other):
            option = next(each.opts[0] for each in context.command.params if each.name == other)
            raise UsageInvalid(f"{option} excludes --{name}: that job has its GPUs already")


async def _submit(
    session: Session, wanted: JobOptions, *, on: str | None, dry_run: bool, detach: bool, raw: bool
) -> None:
    if dry_run:
        _print(*build_manifests(wanted, session.namespace))
        return
    async with session.kubernetes() as api:
        made = build_manifests(wanted, await session.current_namespace(api))
        job = await (revise(api, on, *made) if on else _create(api, *made))
        where = f"-n {job.metadata.namespace} {job.metadata.name}"
        done = f"has revision {job.spec.revision}" if on else "created"
        note(f"gpujob {job.metadata.namespace}/{job.metadata.name} {done}")
        await print_warnings(api, job.spec)
        if detach:
            note(f"follow it with: gpupack logs -f {where}")
            click.echo(job.metadata.name)
            return
        await follow_to_end(api, job, raw=raw)


async def _create(api: Api, manifest: Json, config: Json | None) -> GpuJob:
    """Create scripts first, since pods wait for them, then the job, which then owns them.

    A request that was sent may take effect even after an interruption: its answer is awaited.
    Scripts are deleted only where it is known that there is no job.
    """
    namespace = manifest["metadata"]["namespace"]
    scripts = None
    if config is not None:
        scripts = await _created_scripts(api, config, manifest)
    making = asyncio.ensure_future(api.create(GPUJOBS, manifest, namespace=namespace))
    interrupted = False
    while not making.done():
        try:
            await asyncio.wait({making})
        except asyncio.CancelledError:
            interrupted = True
    try:
        job = making.result()
    except KubeError as error:
        if isinstance(error, Refused) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            if scripts is not None:
                name, uid = scripts.metadata.name, scripts.metadata.uid
                await api.delete(CONFIG_MAPS, name, namespace=namespace, uid=uid)
            raise
        if not isinstance(error, Unreachable) or error.sent:
            name = manifest["metadata"]["name"]
            note(f"gpujob {namespace}/{name} may have been created; check with `gpupack jobs`")
        raise
    if scripts is not None:
        await _own(api, scripts, job)
    if interrupted:
        note(f"gpujob {namespace}/{job.metadata.name} created; it continues")
        raise asyncio.CancelledError
    return job


async def _created_scripts(api: Api, config: Json, manifest: Json) -> Object:
    """Create the scripts' ConfigMap, which has the job's name; report a taken name as the job's.

    Raises:
        InputInvalid: a job of this name exists.
    """
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    try:
        return await api.create(CONFIG_MAPS, config, namespace=namespace)
    except AlreadyExists as error:
        try:
            await api.get(GPUJOBS, name, namespace=namespace)
        except KubeError:
            raise error from None
        raise InputInvalid(
            f"gpujob {namespace}/{name} exists already; choose another --name, or delete that one"
        ) from error


async def _own(api: Api, scripts: Object, job: GpuJob) -> None:
    metadata = {"name": job.metadata.name, "uid": job.metadata.uid}
    namespace, name = scripts.metadata.namespace, scripts.metadata.name
    try:
        await api.merge(CONFIG_MAPS, name, owner_patch({"metadata": metadata}), namespace=namespace)
    except KubeError as error:
        note(f"configmap {namespace}/{name} is not deleted with the job, delete it later: {error}")


def _print(manifest: Json, config: Json | None) -> None:
    for each in (manifest, config):
        if each is not None and not each["metadata"]["namespace"]:
            del each["metadata"]["namespace"]
    shown = [each for each in (config, manifest) if each is not None]
    click.echo(as_yaml(shown), nl=False)
