# SPDX-License-Identifier: Apache-2.0
"""`gpupack explain`."""

import click
from rich.text import Text

from gpupack_cli import written_names
from gpupack_cli.answers import Explanation
from gpupack_cli.errors import NotAllowed, ServiceAway
from gpupack_cli.explanation import explained
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_lines
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUJOBS


@click.command(name="explain")
@click.argument("job", callback=written_names.name)
@session_options(rest=True)
@output_option
def command(session: Session, job: str, *, output: Output) -> None:
    """Say why JOB waits, or what became of it, and what would help.

    Its phase and reason stand in the GPUJob. Its position in the queue and what would help are the
    REST API's to say; where that cannot be reached, the rest is told nevertheless.
    """
    run(lambda: _show(session, job, output=output))


async def _show(session: Session, name: str, *, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = await session.here(api)
        job = await api.get(GPUJOBS, name, namespace=namespace)
        more: Explanation | None = None
        try:
            async with session.rest(api) as rest:
                more = await rest.get(f"jobs/{namespace}/{name}/explain", Explanation)
        except (ServiceAway, NotAllowed) as error:
            note(f"without position and advice: {error}")
    if output.document:
        show_document({"status": job.status, "explanation": more}, output)
        return
    show_lines(map(Text, explained(job, more)))
