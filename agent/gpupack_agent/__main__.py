# SPDX-License-Identifier: Apache-2.0
"""The agent's command line.

`run` is for a node; `mps` is for the daemons of limited shares; `preflight` is for a host; `host`
is for a machine without a cluster.
"""

import asyncio
import contextlib
import logging
import os
import pathlib
import signal
import sys
from collections.abc import Coroutine, Iterator
from typing import NoReturn

import click

from gpupack_agent.errors import AgentError
from gpupack_agent.inventory.driver_root import parse_setting
from gpupack_agent.settings import InventorySettings, LimitSettings, kubelet_settings
from gpupack_kubeclient.environment import Environment, SettingsInvalid, error_text

log = logging.getLogger("gpupack_agent")

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.group()
def main() -> None:
    """Run gpupack's node agent, or one of its other programs."""


@main.command()
def run() -> None:
    """Serve this node's GPUs until a signal."""
    try:
        level = Environment(os.environ).log_level()
    except SettingsInvalid as wrong:
        raise click.ClickException(error_text(wrong, os.environ)) from wrong
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _run_and_exit(_until_signal(), AgentError, SettingsInvalid)


@main.command(name="mps")
def mps_command() -> None:
    """Supervise the MPS daemons of this node's GPUs until a signal."""
    from gpupack_agent.mps import supervisor  # noqa: PLC0415 - as for agent below
    from gpupack_agent.mps.folder import MpsFolder  # noqa: PLC0415

    try:
        level = Environment(os.environ).log_level()
        driver = InventorySettings.from_environ(os.environ).driver
        folder = MpsFolder(LimitSettings.from_environ(os.environ).mps)
    except SettingsInvalid as wrong:
        raise click.ClickException(error_text(wrong, os.environ)) from wrong
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    libraries = pathlib.Path("/run/gpupack-mps/lib")
    asyncio.run(_supervise(supervisor.serve(folder, driver, libraries)))


@main.command(name="host")
def host_command() -> None:
    """Serve metrics of this machine's GPUs on loopback until a signal, without a cluster."""
    from gpupack_agent import host  # noqa: PLC0415 - as for agent below

    try:
        settings, level = (
            host.Settings.from_environ(os.environ),
            Environment(os.environ).log_level(),
        )
    except SettingsInvalid as wrong:
        raise click.ClickException(error_text(wrong, os.environ)) from wrong
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _run_and_exit(_supervise(host.run(settings)), AgentError, OSError)


def _run_and_exit(serving: Coroutine[None, None, None], *expected: type[Exception]) -> NoReturn:
    """Run until the end and exit; an expected error is one line, any other has its traceback."""
    failed = False
    try:
        asyncio.run(serving)
    except* expected as group:
        failed = True
        for error in _leaves(group):
            if isinstance(error, SettingsInvalid):
                log.critical("%s", error_text(error, os.environ))
            else:
                log.critical("%s", error)
    except* Exception as unexpected:
        failed = True
        log.critical("a part of the agent failed", exc_info=unexpected)
    sys.exit(failed)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the errors in a group, which may contain groups."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _leaves(each)


def _driver_root(_context: click.Context, _option: click.Parameter, text: str) -> str:
    try:
        return parse_setting(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is neither auto nor an absolute path such as /run/nvidia/driver"
        ) from error


@main.command()
@click.option(
    "--host-root",
    type=click.Path(exists=True, file_okay=False, path_type=pathlib.Path),
    default="/",
    show_default=True,
    help="Where the host's root folder is.",
)
@click.option(
    "--driver-root",
    default="auto",
    show_default=True,
    callback=_driver_root,
    help="The host's folder with NVIDIA's driver; auto: the usual ones.",
)
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--passed-file",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="Stay until a signal, and make this file if the host passed: for a pod on each node.",
)
def preflight(
    host_root: pathlib.Path, driver_root: str, output: str, passed_file: pathlib.Path | None
) -> None:
    """Check a host's driver, container runtime and settings, and show what to change.

    The check changes nothing. The exit status is 1 if a change is necessary. The values of
    GPUPACK_KUBELET_ROOT_DIR, _CGROUP_ROOT, _CGROUP_DRIVER and _RUNTIME_ENDPOINT are compared with
    the host. NODE_NAME is the host's name in the result; by default it is the kernel's host name.
    """
    from gpupack_agent.preflight import checks, report  # noqa: PLC0415 - as for agent below
    from gpupack_agent.preflight.host import read_host  # noqa: PLC0415

    # The first process of a container has no default action for signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS if passed_file else ())
    environment = Environment(os.environ)
    host = read_host(
        host_root,
        name=environment.text("NODE_NAME", ""),
        driver_root=driver_root,
        kubelet=kubelet_settings(environment),
    )
    found = checks.findings(host)
    click.echo((report.as_json if output == "json" else report.as_text)(host, found))
    if passed_file is None:
        sys.exit(0 if report.passed(found) else 1)
    if report.passed(found):
        passed_file.touch()
    signal.sigwait(END_SIGNALS)


async def _supervise(serving: Coroutine[None, None, None]) -> None:
    """Supervise until a signal; then the daemons end in an orderly way."""
    await _cancelled_by_signal(asyncio.create_task(serving))


async def _until_signal() -> None:
    """Run the agent until a signal; then it removes its sockets, and the kubelet sees its end."""
    from gpupack_agent import agent  # noqa: PLC0415 - the whole agent, 40 MiB

    settings = agent.Settings.from_environ(os.environ)
    await _cancelled_by_signal(asyncio.create_task(agent.run(settings, os.environ)))


async def _cancelled_by_signal(serving: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in END_SIGNALS:
        loop.add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    main()
