# SPDX-License-Identifier: Apache-2.0
"""The command line: one command per workload, one line of result, an exit status for the reason.

Exit status: 0 done and nothing found wrong (the result says whether it is verified); 2 bad
argument; 3 wrong result, or an unhealthy GPU; 4 out of memory; 5 no such device; 6 other workers
missing; 7 stopped before it was done, and saved; 130 or 143 ended by SIGINT or SIGTERM; 1
anything else.
"""

import click

from gpupack_workloads import commands


class Workloads(click.Group):
    """The workloads' commands, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        del ctx
        return sorted([*commands.names(), *commands.SERVERS, *commands.OF_OWN_IMAGES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command, or None where there is none of that name."""
        return commands.load(cmd_name) if cmd_name in self.list_commands(ctx) else None


@click.group(cls=Workloads)
def main() -> None:
    """Run one of gpupack's built-in GPU workloads."""
