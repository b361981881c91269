# SPDX-License-Identifier: Apache-2.0
"""The unchanged gpupack-api with a Kubernetes API server that holds an invented cluster.

    python tests/browser/serve.py --port 0 --world small

Prints one line of JSON: where the page is, and where the cluster can be changed (see Control).
"""

import argparse
import asyncio
import json
import pathlib
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "tests/browser")]

from aiohttp import web  # noqa: E402
from extender_builders import pod, whole  # noqa: E402
from fake_api import connected, serving  # noqa: E402
from ports import free_port  # noqa: E402
from self_signed import self_signed  # noqa: E402
from world import World, large, plain, small  # noqa: E402

from gpupack_apiserver import app  # noqa: E402
from gpupack_apiserver.settings import Settings  # noqa: E402

CHURNED = "churned"


class Control:
    """Changes the cluster while it is watched."""

    def __init__(self, world: World) -> None:
        self._world, self._turn = world, 0

    def app(self) -> web.Application:
        control = web.Application()
        for name in ("churn", "expire", "grant", "pods", "remove_job"):
            control.router.add_post(f"/{name}", getattr(self, name))
        return control

    async def churn(self, request: web.Request) -> web.Response:
        """The next so many nodes lose the pod that this gave them, or get one."""
        kube = self._world.kube
        names = sorted(name for _, name in kube.collections["gpunodes"])
        for _ in range(int(request.query["nodes"])):
            where = names[self._turn % len(names)]
            self._turn += 1
            name = f"{CHURNED}-{where}"
            if ("team", name) in kube.collections["pods"]:
                kube.remove("pods", name, "team")
            else:
                built = pod(name, on=where, devices=whole(where, 7), phase="Running")
                kube.put("pods", plain(built))
        return web.json_response({})

    async def expire(self, request: web.Request) -> web.Response:
        """A token is valid no longer."""
        self._world.kube.users.pop(request.query["token"], None)
        return web.json_response({})

    async def grant(self, request: web.Request) -> web.Response:
        """A token is a user's."""
        self._world.kube.users[request.query["token"]] = request.query["user"]
        return web.json_response({})

    async def pods(self, request: web.Request) -> web.Response:
        """A pod holds whole GPUs of a node from now on."""
        of = request.query
        numbers = map(int, of["gpus"].split(","))
        self._world.pod(of["name"], of["node"], whole(of["node"], *numbers))
        return web.json_response({})

    async def remove_job(self, request: web.Request) -> web.Response:
        """A job is deleted."""
        self._world.kube.remove("gpujobs", request.query["name"], request.query["namespace"])
        return web.json_response({})


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM."""
    world = small() if options.world == "small" else large(options.nodes, options.pods)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with tempfile.TemporaryDirectory() as folder:
        cert, key = self_signed(pathlib.Path(folder))
        environ = {
            "GPUPACK_LISTEN_PORT": str(options.port or free_port()),
            "GPUPACK_TLS_CERT": str(cert),
            "GPUPACK_TLS_KEY": str(key),
            "GPUPACK_CONFIG": str(config_in(pathlib.Path(folder))),
            "GPUPACK_PAGE_FOLDER": str(options.page),
        }
        settings = Settings.from_environ(environ)
        async with (
            connected(world.kube.app()) as (api, _),
            serving(Control(world).app()) as control,
        ):
            built = app.build(settings, api)
            announcing = asyncio.create_task(_tell(built, settings.port, control))
            await app.run(built, stop)
            announcing.cancel()


async def _tell(built: app.App, port: int, control: str) -> None:
    """Once everything is read."""
    for reflector in built.reflectors.values():
        await reflector.synced.wait()
    while not all(server.started for server in built.servers):
        await asyncio.sleep(0.01)
    print(json.dumps({"page": f"https://localhost:{port}", "control": control}), flush=True)


def config_in(folder: pathlib.Path) -> pathlib.Path:
    """A figure of the history each second."""
    path = folder / "config.yaml"
    path.write_text("sample_seconds: 1\n")
    return path


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--world", choices=["small", "large"], default="small")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "apiserver/dashboard/dist")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
