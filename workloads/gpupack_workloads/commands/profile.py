# SPDX-License-Identifier: Apache-2.0
"""`profile`: runs another command with a recorder around it."""

from pathlib import Path

import click

from gpupack_workloads import commands
from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.folders import usable_folder
from gpupack_workloads.profile.nsight import find_nsys
from gpupack_workloads.profile.recorded_run import around
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.settings import temporary_folder


@click.command(
    "profile",
    context_settings={"ignore_unknown_options": True},
    epilog="Arguments of the workload come after `--`.",
)
@click.argument("workload")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for trace and table.  [default: gpupack-profile below the temporary folder]",
)
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    default=15,
    show_default=True,
    help="How many kernels the result names.",
)
@click.option("--nsys", is_flag=True, help="Use Nsight Systems instead of torch's profiler.")
@common
def command(  # noqa: PLR0913  click hands over each option by its name
    workload: str,
    arguments: tuple[str, ...],
    *,
    out: Path | None,
    top: int,
    nsys: bool,
    seed: int,
    require_gpu: bool,
    as_json: bool,
) -> None:
    """Run WORKLOAD with its ARGUMENTS and report where the time went."""
    inner = profilable(workload)
    passed = [*arguments, *(["--seed", str(seed)] if seed else [])]
    passed += ["--require-gpu"] if require_gpu else []
    # Judges the workload's arguments before anything is made or started.
    inner.make_context(workload, list(passed))
    try:
        tool = find_nsys() if nsys else ""
        folder = usable_folder(out or temporary_folder() / "gpupack-profile")
    except BadArgument as error:
        raise click.UsageError(str(error)) from error
    recording = Recording(workload, folder, top)
    if tool:
        finish("profile", lambda module: module.run(tool, recording, passed), as_json=as_json)
        return
    passed += ["--json"] if as_json else []
    inner.main(passed, workload, standalone_mode=False, obj=around(recording))


def profilable(name: str) -> click.Command:
    """Return a workload's command.

    Raises:
        click.BadParameter: there is none of this name, or it is this one.
    """
    names = [each for each in commands.names() if each != "profile"]
    if name not in names:
        raise click.BadParameter(f"{name!r} is none of {', '.join(names)}", param_hint="WORKLOAD")
    return commands.load(name)
