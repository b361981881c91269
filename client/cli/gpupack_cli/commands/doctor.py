# SPDX-License-Identifier: Apache-2.0
"""`gpupack doctor`."""

import dataclasses
import importlib.metadata
import re
from typing import Final

import click
import msgspec
from rich.text import Text

from gpupack_cli.doctor.checks import findings
from gpupack_cli.doctor.finding import Finding, Level
from gpupack_cli.doctor.reading import read_cluster
from gpupack_cli.doctor.rest_call import call_rest_api
from gpupack_cli.doctor.served import read_served
from gpupack_cli.errors import ChecksFailed
from gpupack_cli.figures import count
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
VERSION_CHECK: Final = "kubernetes version"
"""The check that needs no permission."""
MISSING_PERMISSION: Final = re.compile("cannot (get|list|watch|create) resource")
ADMINISTRATOR: Final = "`gpupack doctor` is for administrators of the cluster (docs/cli.md)"


@click.command(name="doctor")
@session_options(rest=True, namespaced=False)
@click.option("--quiet", "-q", is_flag=True, help="Hide checks that succeed.")
@output_option
def command(session: Session, *, quiet: bool, output: Output) -> None:
    """Check the installation, and list what is wrong and how to fix it.

    It changes nothing. Checks whose objects you may not read are skipped: an administrator of
    the cluster gets all of them. The exit status is 1
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
        are = "is a failure" if broken == 1 else "are failures"
        raise ChecksFailed(f"{broken} of {count(len(found), 'finding')} {are}")


def skipped_text(found: list[Finding]) -> str:
    """Return how many checks were skipped, and why; empty: none."""
    skipped = [each for each in found if each.level is Level.SKIPPED]
    if not skipped:
        return ""
    named = list(dict.fromkeys(each.check for each in skipped))
    one = len(named) == 1
    why = "its line has the reason" if one else "their lines have the reasons"
    if all(map(_is_refused, skipped)):
        why = f"you may not read {'its' if one else 'their'} objects"
    if any(map(_is_refused, skipped)):
        why += f"; {ADMINISTRATOR}"
    total = len({each.check for each in found})
    were = "was" if one else "were"
    counted = f"{len(named)} of {count(total, 'check')} {were} skipped ({', '.join(named)}): {why}"
    if any(each.level is not Level.SKIPPED and each.check != VERSION_CHECK for each in found):
        return counted
    return f"nothing is known of the installation: {counted}"


def joined(found: list[Finding]) -> list[Finding]:
    """Return the findings, with one for all checks that one missing permission skips."""
    shown = dict[str, Finding]()
    for number, each in enumerate(found):
        key = each.message if _is_refused(each) else str(number)
        before = shown.get(key)
        named = f"{before.check}, {each.check}" if before else each.check
        shown[key] = msgspec.structs.replace(each, check=named)
    return list(shown.values())


def _is_refused(finding: Finding) -> bool:
    """Return whether a check was skipped with the API server's text for a missing permission."""
    return finding.level is Level.SKIPPED and MISSING_PERMISSION.search(finding.message) is not None


def _print(found: list[Finding]) -> None:
    lines = list[Text]()
    for each in joined(found):
        line = Text(LABELS[each.level], style=STYLES.get(each.level.value, ""))
        line.append(f"  {each.check}: ", style="bold").append(plain(each.message))
        lines.append(line)
        if each.fix:
            lines.append(Text(f"      {plain(each.fix)}"))
    show_lines(lines)
