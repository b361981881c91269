# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a server, as an ingress or `kubectl proxy` is.

It shows the server below a prefix, and takes the header Authorization for itself.

    python tests/browser/prefix_proxy.py https://localhost:8444 /gpupack

Prints its own address.
"""

import sys

import aiohttp
from aiohttp import web

TAKEN = {"authorization", "host"}
ITS_OWN = {"content-length", "transfer-encoding", "connection"}


async def forward(request: web.Request) -> web.StreamResponse:
    """Ask the server, and pass on what it says as it comes."""
    target, prefix = request.app["target"], request.app["prefix"]
    path = request.raw_path
    if not path.startswith(f"{prefix}/"):
        return web.Response(status=404, text=f"there is {prefix}/ alone")
    headers = {name: value for name, value in request.headers.items() if name.lower() not in TAKEN}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(
            request.method,
            f"{target}{path.removeprefix(prefix)}",
            headers=headers,
            data=await request.read(),
            ssl=False,
        ) as found,
    ):
        kept = {name: value for name, value in found.headers.items() if name.lower() not in ITS_OWN}
        answer = web.StreamResponse(status=found.status, headers=kept)
        await answer.prepare(request)
        async for piece in found.content.iter_any():
            await answer.write(piece)
        return answer


async def started(app: web.Application) -> None:
    """Say where it is."""
    print(f"http://127.0.0.1:{app['port']}", flush=True)


def main() -> None:
    """Serve."""
    from ports import free_port  # noqa: PLC0415 - the path is set first

    app = web.Application()
    app["target"], app["prefix"], app["port"] = sys.argv[1], sys.argv[2], free_port()
    app.router.add_route("*", "/{path:.*}", forward)
    app.on_startup.append(started)
    web.run_app(app, host="127.0.0.1", port=app["port"], print=None, access_log=None)


if __name__ == "__main__":
    sys.path.insert(0, __file__.replace("browser/prefix_proxy.py", "helpers"))
    main()
