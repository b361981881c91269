# SPDX-License-Identifier: Apache-2.0
"""The agent's command line: `python -m gpupack_agent run`, and `probe` for the kubelet."""

import asyncio
import contextlib
import logging
import os
import signal
import sys

import click

from gpupack_agent import liveness
from gpupack_agent.errors import AgentError
from gpupack_agent.settings import HostSettings
from gpupack_kube.environment import Environment, SettingsInvalid

log = logging.getLogger("gpupack_agent")


@click.group()
def main() -> None:
    """Gpupack's node agent."""


@main.command()
def run() -> None:
    """Serve this node's GPUs until a signal."""
    try:
        level = Environment(os.environ).log_level()
    except SettingsInvalid as wrong:
        raise click.ClickException(str(wrong)) from wrong
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    failed = False
    try:
        asyncio.run(_until_signal())
    except* (AgentError, SettingsInvalid) as expected:
        failed = True
        for error in expected.exceptions:
            log.critical("%s", error)
    except* Exception as unexpected:
        failed = True
        log.critical("a part of the agent failed", exc_info=unexpected)
    sys.exit(failed)


@main.command(name="probe")
@click.option("--ready", is_flag=True, help="Ask for readiness: registered with the kubelet.")
def probe_command(*, ready: bool) -> None:
    """Exit with 0 if the agent on this node is alive."""
    problem = liveness.problem(HostSettings.from_environ(os.environ).probe, ready=ready)
    if problem:
        raise click.ClickException(problem)


async def _until_signal() -> None:
    """A signal ends the agent in order: sockets are removed, the kubelet sees us go."""
    from gpupack_agent import agent  # noqa: PLC0415 - costs a probe, every few seconds, 0.3 s

    settings = agent.Settings.from_environ(os.environ)
    serving = asyncio.create_task(agent.run(settings, os.environ))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    main()
