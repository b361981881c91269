# SPDX-License-Identifier: Apache-2.0
"""`gpupack rerun`."""

import click

from gpupack_cli import written_names
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_crds.lifecycle import rerun


@click.command(name="rerun")
@click.argument("job", callback=written_names.name)
@click.option(
    "--name",
    "new_name",
    default="",
    callback=written_names.name_or_empty,
    help="Name of the new job (default: JOB-rerun-1, or the next free number).",
)
@session_options()
def command(session: Session, job: str, *, new_name: str) -> None:
    """Create a new job from the spec of the finished JOB, and print its name.

    JOB does not change: it keeps its results, attempts and costs. Its scripts are copied.
    """
    run(lambda: _rerun(session, job, new_name))


async def _rerun(session: Session, name: str, new_name: str) -> None:
    async with session.kubernetes() as api:
        namespace = await session.current_namespace(api)
        job = await rerun(api, name, namespace=namespace, new_name=new_name)
    note(f"gpujob {namespace}/{job.metadata.name} created, a rerun of {name}")
    click.echo(job.metadata.name)
