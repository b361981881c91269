# SPDX-License-Identifier: Apache-2.0
"""Entry point of one machine's server: settings from the environment, runs until SIGTERM.

python -m gpupack_apiserver.host           serve
python -m gpupack_apiserver.host token     print the token, which is created where there is none
python -m gpupack_apiserver.host health    check the server that runs here; 0: it serves
"""

import argparse
import asyncio
import errno
import http.client
import logging
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from gpupack_apiserver.errors import PageInvalid, TokenUnusable
from gpupack_apiserver.host.settings import HostSettings
from gpupack_apiserver.host.token import token_at
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_restapi import PREFIX

log = logging.getLogger(__name__)

HEALTH: Final = f"{PREFIX}/health/ready"
ANSWER_SECONDS: Final = 5.0


def main() -> None:
    """Run the chosen command; end non-zero when an essential task fails."""
    commands = {"serve": _serve, "token": _token, "health": _health}
    parser = argparse.ArgumentParser(
        prog="python -m gpupack_apiserver.host",
        description="GPUs of one machine, without a cluster.",
    )
    parser.add_argument("command", nargs="?", choices=commands, default="serve")
    chosen = commands[parser.parse_args().command]
    try:
        chosen(HostSettings.from_environ(os.environ), os.environ)
    except (SettingsInvalid, TokenUnusable) as error:
        sys.exit(f"gpupack-host: {error}")
    except PageInvalid as error:
        sys.exit(f"gpupack-host: GPUPACK_PAGE_FOLDER: {error}")


def _serve(settings: HostSettings, environ: Mapping[str, str]) -> None:
    # `health` runs every half minute, and takes a tenth of the time that these imports take.
    from gpupack.config import load_config  # noqa: PLC0415
    from gpupack.errors import ConfigInvalid  # noqa: PLC0415
    from gpupack_apiserver.host import app  # noqa: PLC0415
    from gpupack_httpserver.process import run_until_signal  # noqa: PLC0415

    async def answer(stop: asyncio.Event) -> None:
        config = load_config(None, environ)
        built = app.build(settings, config)
        if simulated := config.this_machine.simulated_gpus:
            log.warning("the GPUs are simulated (%s): nothing computes on them", simulated)
        log.info("%s; its token is in %s", settings.url, settings.token)
        await app.run(built, stop)

    try:
        run_until_signal(answer, log_level=settings.log_level)
    except ConfigInvalid as error:
        sys.exit(f"gpupack-host: {error}")
    except ExceptionGroup as died:
        if died.subgroup(_is_in_use) is None:
            raise
        sys.exit(
            f"gpupack-host: {settings.address}:{settings.port} is in use; stop the other process "
            "or set GPUPACK_LISTEN_PORT"
        )


def _is_in_use(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _token(settings: HostSettings, _: Mapping[str, str]) -> None:
    print(token_at(settings.token))


def _health(settings: HostSettings, _: Mapping[str, str]) -> None:
    try:
        tls = ssl.create_default_context(cafile=settings.tls_cert) if settings.tls_cert else None
        if tls is not None:
            # The certificate itself is trusted, whatever its name and issuer.
            tls.check_hostname = False
            tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        urllib.request.urlopen(  # noqa: S310 - settings.url is http or https
            settings.url + HEALTH, timeout=ANSWER_SECONDS, context=tls
        ).close()
    except (OSError, http.client.HTTPException) as error:
        said = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
        sys.exit(f"gpupack-host: {settings.url}: {error} {said}".rstrip())


if __name__ == "__main__":
    main()
