# SPDX-License-Identifier: Apache-2.0
"""`gpupack doctor`."""

import dataclasses
import importlib.metadata
from typing import Final

import click
from rich.text import Text

from gpupack_cli.doctor.checks import findings
from gpupack_cli.doctor.finding import Finding, Level
from gpupack_cli.doctor.reading import read_cluster
from gpupack_cli.doctor.rest_call import call_rest_api
from gpupack_cli.doctor.served import read_served
from gpupack_cli.errors import ChecksFailed
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import STYLES, show_document, show_lines
from gpupack_cli.release import find_release
from gpupack_cli.session import Session, run
from gpupack_cli.text import plain

LABELS: Final = {
    Level.OK: "ok  ",
    Level.WARNING: "warn",
    Level.FAILED: "FAIL",
    Level.SKIPPED: "skip",
}


@click.command(name="doctor")
@session_options(rest=True, namespaced=False)
@click.option("--quiet", "-q", is_flag=True, help="Hide checks that succeed.")
@output_option
def command(session: Session, *, quiet: bool, output: Output) -> None:
    """Check the installation, and list what is wrong and how to fix it.

    It changes nothing. Checks whose objects you may not read are skipped. The exit status is 1
    where something is broken, and 0 where there are only warnings.
    """
    run(lambda: _check(session, quiet=quiet, output=output))


async def _check(session: Session, *, quiet: bool, output: Output) -> None:
    async with session.kubernetes() as api:
        release = await find_release(session, api)
        seen = await read_cluster(api, importlib.metadata.version("gpupack-cli"), release)
        seen = dataclasses.replace(
            seen,
            caller=await call_rest_api(session, api, seen),
            served=await read_served(session, api, release.namespace),
        )
    found = findings(seen)
    shown = [each for each in found if not (quiet and each.level is Level.OK)]
    broken = sum(each.level is Level.FAILED for each in found)
    if output.document:
        show_document({"findings": shown, "failed": broken}, output)
    else:
        _print(shown)
        if text := skipped_text(found):
            note(text)
    if broken:
        raise ChecksFailed(f"{broken} of {len(found)} findings are failures")


def skipped_text(found: list[Finding]) -> str:
    """Return how many checks were skipped, and why; empty: none."""
    skipped = [each for each in found if each.level is Level.SKIPPED]
    if not skipped:
        return ""
    named = list(dict.fromkeys(each.check for each in skipped))
    # The API server's text for a missing permission.
    refused = all(" cannot " in each.message for each in skipped)
    why = "you may not read their objects" if refused else "their lines have the reasons"
    were = "check was" if len(named) == 1 else "checks were"
    return f"{len(named)} {were} skipped ({', '.join(named)}): {why}"


def _print(found: list[Finding]) -> None:
    lines = list[Text]()
    for each in found:
        line = Text(LABELS[each.level], style=STYLES.get(each.level.value, ""))
        line.append(f"  {each.check}: ", style="bold").append(plain(each.message))
        lines.append(line)
        if each.fix:
            lines.append(Text(f"      {plain(each.fix)}"))
    show_lines(lines)
