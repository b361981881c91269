# SPDX-License-Identifier: Apache-2.0
"""The extender as a process: settings from the environment, until SIGTERM."""

import asyncio
import gc
import logging
import os
import resource
import sys
from typing import Final

from gpupack_extender import app
from gpupack_extender.settings import Settings
from gpupack_httpserver.process import run_until_signal
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import SettingsInvalid, error_text

log = logging.getLogger(__name__)

YOUNG_OBJECTS: Final = 20_000
"""Number of new objects after which Python looks for garbage cycles. Little of what the extender
keeps is garbage, and with Python's 700 a tenth of its time goes into the search."""


def main() -> None:
    """Run the extender; exit non-zero when an essential task dies."""
    try:
        settings = Settings.from_environ(os.environ)
    except SettingsInvalid as error:
        sys.exit(f"gpupack-extender: {error_text(error, os.environ)}")

    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()

    # kube-scheduler holds a connection for each worker of a gang that gathers, up to a thousand.
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))

    async def extend(stop: asyncio.Event) -> None:
        # A separate connection, so that many waiting calls do not delay the watch of the Lease.
        async with Api.connect(os.environ) as api, Api.connect(os.environ) as leases:
            log.info(
                "verbs on 127.0.0.1:%s, plan API on :%s",
                *(settings.serving.verbs_port, settings.serving.plan_port),
            )
            await app.run(app.build(settings, api, leases), stop)

    run_until_signal(extend, log_level=settings.log_level)
