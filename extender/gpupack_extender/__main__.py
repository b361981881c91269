# SPDX-License-Identifier: Apache-2.0
"""Run the extender: settings from the environment, until SIGTERM."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping

import uvloop

from gpupack_extender import app
from gpupack_extender.settings import Settings
from gpupack_kube.client import Api
from gpupack_kube.environment import SettingsInvalid

log = logging.getLogger(__name__)


async def serve(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve until a signal comes."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Api.connect(environ) as api:
        log.info(
            "verbs on 127.0.0.1:%s, plan API on :%s",
            *(settings.serving.verbs_port, settings.serving.plan_port),
        )
        await app.run(app.build(settings, api), stop)


def main() -> None:
    """Entry point; ends non-zero when an essential task dies."""
    try:
        settings = Settings.from_environ(os.environ)
    except SettingsInvalid as error:
        sys.exit(f"gpupack-extender: {error}")
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, os.environ))


if __name__ == "__main__":
    main()
