# SPDX-License-Identifier: Apache-2.0
"""Command `python -m gpupack_operator`, which runs the operator; `… probe` checks its health."""

import asyncio
import logging
import os
import sys

import click

from gpupack_operator import liveness
from gpupack_operator.errors import OperatorError

log = logging.getLogger("gpupack_operator")


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Run the operator for GPUJobs."""
    if context.invoked_subcommand is None:
        run()


@main.command()
def probe() -> None:
    """Fail unless the operator has recently reported that it is healthy."""
    try:
        liveness.probe(liveness.heartbeat_path(os.environ))
    except OperatorError as error:
        sys.exit(str(error))


def run() -> None:
    """Run until SIGTERM; any other end is an error."""
    # kopf, kubernetes and numpy take a second to import: the probe must not pay for them.
    from gpupack_kubeclient.environment import SettingsInvalid, error_text  # noqa: PLC0415
    from gpupack_kubeclient.errors import LeaseLost  # noqa: PLC0415
    from gpupack_operator import service  # noqa: PLC0415
    from gpupack_operator.settings import Settings  # noqa: PLC0415

    try:
        settings = Settings.from_environ(os.environ)
    except SettingsInvalid as error:
        sys.exit(error_text(error, os.environ))
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    # One line for each handler of each event says nothing about a job.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        asyncio.run(service.serve(settings, os.environ))
    except (OperatorError, LeaseLost) as error:
        log.error("%s; stopping", error)  # noqa: TRY400 - the cause is known, the stack is not news
        sys.exit(1)


if __name__ == "__main__":
    main()
