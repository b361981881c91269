# SPDX-License-Identifier: Apache-2.0
"""Who scrapes a part in unit tests, and the port that the part shows its metrics at."""

import ssl

import aiohttp
from ports import free_port
from self_signed import self_signed

TOKEN = "scraper-token"


def metrics_environ(folder):
    """Environment of a part that is to show its metrics, and the port."""
    certificate, key = self_signed(folder)
    port = free_port()
    return {
        "GPUPACK_METRICS_PORT": str(port),
        "GPUPACK_METRICS_TLS_CERT": str(certificate),
        "GPUPACK_METRICS_TLS_KEY": str(key),
    }, port


async def answer(port, folder, *, path="/metrics", method="GET", token=TOKEN):
    """Status and text of one call, by the certificate of the folder."""
    trusted = ssl.create_default_context(cafile=folder / "tls.crt")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://localhost:{port}{path}"
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, headers=headers, ssl=trusted) as response,
    ):
        return response.status, await response.text()
