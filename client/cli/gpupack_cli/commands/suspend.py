# SPDX-License-Identifier: Apache-2.0
"""`gpupack suspend`."""

import click

from gpupack_cli import written_names
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_crds.lifecycle import set_suspended


@click.command(name="suspend")
@click.argument("job", callback=written_names.name)
@session_options()
def command(session: Session, job: str) -> None:
    """Stop JOB and release its GPUs until it is resumed.

    Its workers have their terminationGracePeriodSeconds to save. Time in which it is suspended does
    not count against activeDeadlineSeconds.
    """
    run(lambda: _suspend(session, job))


async def _suspend(session: Session, name: str) -> None:
    async with session.kubernetes() as api:
        namespace = await session.current_namespace(api)
        await set_suspended(api, name, namespace=namespace, suspended=True)
    note(f"gpujob {namespace}/{name} suspended")
