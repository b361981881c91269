# SPDX-License-Identifier: Apache-2.0
"""`gpupack completion`."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_GPUPACK_COMPLETE"


@click.command(name="completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    bash: `source <(gpupack completion bash)`; add it to ~/.bashrc to load it in every shell.
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has these three
    root = context.find_root()
    click.echo(found(root.command, {}, "gpupack", VARIABLE).source())
