# SPDX-License-Identifier: Apache-2.0
"""`gpupack snapshot`."""

from pathlib import Path

import click

from gpupack_cli.errors import InputInvalid
from gpupack_cli.notes import note
from gpupack_cli.options import session_options
from gpupack_cli.session import Session, run


@click.command(name="snapshot")
@session_options(rest=True, namespaced=False)
@click.option(
    "-f",
    "--filename",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Output file; - is stdout.",
)
def command(session: Session, *, filename: Path) -> None:
    """Write nodes, GPUs and their holders as one JSON document.

    `gpupack-simulator` replays jobs on it (--snapshot FILE --adopt). Pods are named by UID. The
    command needs the permission `get /snapshot`, which role gpupack-snapshot-reader grants.
    """
    run(lambda: _write(session, filename))


async def _write(session: Session, path: Path) -> None:
    async with session.kubernetes() as api, session.rest(api) as rest:
        document = await rest.get_bytes("snapshot")
    try:
        with click.open_file(str(path), "wb") as file:
            file.write(document + b"\n")
    except OSError as error:
        raise InputInvalid(f"{path} cannot be written: {error.strerror}") from error
    if str(path) != "-":
        note(f"{len(document)} bytes written to {path}")
