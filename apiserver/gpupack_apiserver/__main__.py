# SPDX-License-Identifier: Apache-2.0
"""Entry point of the API: settings from the environment, runs until SIGTERM."""

import asyncio
import logging
import os
import sys

from gpupack_apiserver import app
from gpupack_apiserver.errors import PageInvalid
from gpupack_apiserver.settings import Settings
from gpupack_httpserver.process import run_until_signal
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import SettingsInvalid, error_text

log = logging.getLogger(__name__)


def main() -> None:
    """Run the API; end non-zero when an essential task fails."""
    try:
        settings = Settings.from_environ(os.environ)
    except SettingsInvalid as error:
        sys.exit(f"gpupack-api: {error_text(error, os.environ)}")

    async def answer(stop: asyncio.Event) -> None:
        async with Api.connect(os.environ) as api:
            log.info("HTTPS on :%s", settings.port)
            await app.run(app.build(settings, api), stop)

    try:
        run_until_signal(answer, log_level=settings.log_level)
    except PageInvalid as error:
        sys.exit(f"gpupack-api: GPUPACK_PAGE_FOLDER: {error}")


if __name__ == "__main__":
    main()
