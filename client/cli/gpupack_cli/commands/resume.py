# SPDX-License-Identifier: Apache-2.0
"""`gpupack resume`."""

import click

from gpupack_cli import written_names
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run
from gpupack_crds.lifecycle import set_suspended


@click.command(name="resume")
@click.argument("job", callback=written_names.name)
@session_options()
def command(session: Session, job: str) -> None:
    """Put the suspended JOB back into the queue.

    Its position is that of its creation time; its waiting time starts now.
    """
    run(lambda: _resume(session, job))


async def _resume(session: Session, name: str) -> None:
    async with session.kubernetes() as api:
        namespace = await session.current_namespace(api)
        await set_suspended(api, name, namespace=namespace, suspended=False)
    note(f"gpujob {namespace}/{name} resumed")
