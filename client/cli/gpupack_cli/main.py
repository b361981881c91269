# SPDX-License-Identifier: Apache-2.0
"""The command and its subcommands.

Each is imported when it is called: importing all takes longer than most calls.
"""

import importlib
import logging
import sys
import traceback
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

import click

import gpupack_terminal
from gpupack_cli import errors
from gpupack_cli.text import plain
from gpupack_terminal import OutputEnded

NAME: Final = "gpupack"
"""Prefix of messages."""

COMMANDS: Final = {
    "completion": "Print the completion script of a shell.",
    "convert": "Convert manifests of other schedulers into GPUJobs.",
    "cost": "List GPU-hours, energy and costs.",
    "doctor": "Check the installation, and list what to fix.",
    "drain": "Cordon a node's GPUs, stop their jobs, and wait until all are free.",
    "explain": "Explain why a job waits, and what would help.",
    "gpu": "Show, cordon and uncordon single GPUs.",
    "jobs": "List GPUJobs.",
    "logs": "Show the logs of a job's workers.",
    "nodes": "List nodes with GPUs.",
    "queue": "List pending jobs and pods, and why they wait.",
    "quota": "List quotas and their usage.",
    "rerun": "Create a new job from the spec of a finished one.",
    "reservations": "List time-window reservations and their windows.",
    "resume": "Put a suspended job back into the queue.",
    "snapshot": "Write the cluster's state for the simulator.",
    "submit": "Run a command as a GPUJob, and show its output.",
    "suspend": "Stop a job and release its GPUs until it is resumed.",
    "top": "Show nodes and GPUs as bars.",
    "what-if": "Show where and when a job would start.",
}
"""Commands with their help lines, so that `--help` need not import them."""


class Commands(click.Group):
    """The subcommands, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"gpupack_cli.commands.{name}")
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpupack-cli", message="gpupack %(version)s")
def group() -> None:
    """Show a cluster's GPUs and queue, and run jobs on them.

    The kubeconfig selects the cluster, as for kubectl. Exit statuses: 0 success; 2 wrong usage; 65
    invalid file or manifest; 66 no such object; 69 the cluster or the REST API is unavailable; 70
    internal error; 74 the output cannot be written; 77 permission denied; 78 no kubeconfig; 130
    interrupted; 141 the reader of the output has closed it; 143 ended by SIGTERM. `submit` and
    `logs --follow` exit with the job's status.
    """


def main() -> None:
    """Run the command for a user; errors are sentences, and not tracebacks."""
    program = program_name(sys.argv[0])
    sys.exit(gpupack_terminal.run(lambda: run_command(sys.argv[1:], program=program), program=NAME))


def program_name(path: str) -> str:
    """Return the command that a user types: kubectl starts its plugins by their file's name."""
    name = PurePath(path).stem
    return "kubectl gpupack" if name == "kubectl-gpupack" else "gpupack"


def run_command(arguments: Sequence[str], *, program: str = "gpupack") -> int:
    """Run with these arguments; return the exit status."""
    debug = "--debug" in _before_command(arguments)
    logging.basicConfig(level=logging.DEBUG if debug else logging.CRITICAL)
    try:
        ended = group.main(list(arguments), prog_name=program, standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - the one place where a user meets them
        if debug:
            traceback.print_exc()
        return _report_error(error)
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    return ended if isinstance(ended, int) else 0


def _before_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments before `--`: those after it are the job's."""
    given = list(arguments)
    return given[: given.index("--")] if "--" in given else given


def _report_error(error: Exception) -> int:
    if isinstance(error, ExceptionGroup):
        first = error.subgroup(OutputEnded) or error
        return _report_error(first.exceptions[0])
    if isinstance(error, OutputEnded):
        return gpupack_terminal.exit_status(error, program=NAME)
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, click.Abort):
        return errors.INTERRUPTED
    reported = _known_error(error) or errors.Internal(
        f"internal error: {type(error).__name__}: {error}; --debug shows the traceback"
    )
    if str(reported):
        _print_error(str(reported))
    return reported.status


def _known_error(error: Exception) -> errors.CliError | None:
    from gpupack_crds.errors import LifecycleRefused  # noqa: PLC0415 - only where it went wrong
    from gpupack_kubeclient.environment import SettingsInvalid  # noqa: PLC0415 - only where it went wrong
    from gpupack_kubeclient.errors import KubeError  # noqa: PLC0415 - as above

    if isinstance(error, errors.CliError):
        return error
    if isinstance(error, KubeError | SettingsInvalid | LifecycleRefused):
        return errors.from_kube_error(error)
    return None


def _print_error(text: str) -> None:
    click.echo(f"{NAME}: {plain(text)}", err=True)
