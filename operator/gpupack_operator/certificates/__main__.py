# SPDX-License-Identifier: Apache-2.0
"""Command `python -m gpupack_operator.certificates`, which issues certificates until SIGTERM."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping

from gpupack_crds import names
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import Environment, SettingsInvalid, error_text
from gpupack_operator.certificates.certificate_requests import (
    CertificateRequest,
    parse_certificate_requests,
)
from gpupack_operator.certificates.service import keep


def main() -> None:
    """Run the issuer; exit with a message if a setting is invalid."""
    try:
        asyncio.run(_serve(os.environ))
    except SettingsInvalid as error:
        sys.exit(error_text(error, os.environ))


async def _serve(environ: Mapping[str, str]) -> None:
    environment = Environment(environ)
    logging.basicConfig(level=environment.log_level(), format="%(levelname)s %(name)s: %(message)s")
    none: tuple[CertificateRequest, ...] = ()
    requests = environment.stated("GPUPACK_CERTIFICATES", parse_certificate_requests, none)
    namespace = environment.text("GPUPACK_SYSTEM_NAMESPACE", names.SYSTEM_NAMESPACE)
    async with Api.connect(environ) as api:
        work = asyncio.create_task(keep(api, requests, namespace=namespace))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            return


if __name__ == "__main__":
    main()
