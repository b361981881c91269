# SPDX-License-Identifier: Apache-2.0
"""Compares HTTP servers and JSON codecs that answer kube-scheduler's filter calls.

Every candidate runs in a process of its own and does the same work: decode ExtenderArgs, intersect
NodeNames with the known nodes, answer one name. The client does what Go's does: one keep-alive
connection, TCP_NODELAY, Content-Length, one call at a time. Rounds are interleaved, so that a
noisy machine hits all candidates alike; ratios are to the first candidate of the same run.

    python benchmarks/extender_http.py [--rounds 5] [--calls 60]

Granian is measured where it is installed. See docs/adr/0004-async-server-and-json.md.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
import orjson
import uvicorn
import uvloop
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpupack_extender import endpoints
from gpupack_extender.call_body import CallBody
from gpupack_extender.wire import ExtenderArgs
from gpupack_httpserver.connections import Connection
from gpupack_kubeclient import objects

KNOWN = frozenset(f"node-{index:05}" for index in range(5000))
PATH = "/scheduler/filter"
Codec = Callable[[bytes], bytes]
Serve = Callable[[int, Codec], None]


class FilterCall(msgspec.Struct):
    """Fields of a filter call that are needed; others are skipped."""

    Pod: objects.Pod
    NodeNames: list[str]


def with_msgspec(body: bytes) -> bytes:
    """Decode only the fields that are needed, typed."""
    call = msgspec.json.decode(body, type=FilterCall)
    return msgspec.json.encode({"NodeNames": _choose(call.NodeNames)})


def with_msgspec_and_each_key_once(body: bytes) -> bytes:
    """Decode as the extender does: typed, and refuse duplicate keys."""
    call = endpoints.decode(CallBody.of(body), ExtenderArgs)
    return msgspec.json.encode({"NodeNames": _choose(call.node_names)})


def with_orjson(body: bytes) -> bytes:
    """Decode everything into dictionaries."""
    return orjson.dumps({"NodeNames": _choose(orjson.loads(body)["NodeNames"])})


def with_json(body: bytes) -> bytes:
    """Decode everything with the standard library."""
    return json.dumps({"NodeNames": _choose(json.loads(body)["NodeNames"])}).encode()


def _choose(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in KNOWN][:1]


def bare_asgi(codec: Codec) -> Any:
    """Return an ASGI application without a framework."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = codec(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def starlette_app(codec: Codec) -> Any:
    """Return the same application as a Starlette route."""

    async def handle(request: Request) -> Response:
        return Response(codec(await request.body()), media_type="application/json")

    return Starlette(routes=[Route(PATH, handle, methods=["POST"])])


def serve_uvicorn(build: Callable[[Codec], Any], http: Any = "httptools") -> Serve:
    """Return a server: Uvicorn with uvloop and httptools."""

    def serve(port: int, codec: Codec) -> None:
        config = uvicorn.Config(
            build(codec),
            port=port,
            loop="uvloop",
            http=http,
            access_log=False,
            log_level="warning",
            timeout_keep_alive=600,
        )
        uvicorn.Server(config).run()

    return serve


def serve_aiohttp(port: int, codec: Codec) -> None:
    """Serve with aiohttp on uvloop."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=codec(await request.read()), content_type="application/json")

    async def main() -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post(PATH, handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    uvloop.run(main())


def serve_granian(port: int, codec: Codec) -> None:
    """Serve the bare ASGI application with Granian (Rust)."""
    from granian.constants import Interfaces  # noqa: PLC0415 - optional
    from granian.server.embed import Server  # noqa: PLC0415 - optional

    server = Server(bare_asgi(codec), port=port, interface=Interfaces.ASGI, log_enabled=False)
    run: Awaitable[None] = server.serve()
    uvloop.run(run)


CANDIDATES: dict[str, tuple[Serve, Codec]] = {
    "uvicorn, bare ASGI, msgspec": (serve_uvicorn(bare_asgi), with_msgspec),
    "uvicorn, Starlette, msgspec": (serve_uvicorn(starlette_app), with_msgspec),
    "same, no key twice": (serve_uvicorn(starlette_app), with_msgspec_and_each_key_once),
    "same, bounded connections": (
        serve_uvicorn(starlette_app, http=Connection),
        with_msgspec_and_each_key_once,
    ),
    "aiohttp, msgspec": (serve_aiohttp, with_msgspec),
    "granian, bare ASGI, msgspec": (serve_granian, with_msgspec),
    "uvicorn, bare ASGI, orjson": (serve_uvicorn(bare_asgi), with_orjson),
    "uvicorn, bare ASGI, json": (serve_uvicorn(bare_asgi), with_json),
}


@contextlib.contextmanager
def connected(serve: Serve, codec: Codec) -> Iterator[socket.socket]:
    """Start a server and connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = multiprocessing.get_context("fork").Process(target=serve, args=(port, codec))
    process.start()
    try:
        with _connect(port) as connection:
            yield connection
    finally:
        process.terminate()
        process.join(3)
        process.kill()


def _connect(port: int) -> socket.socket:
    for _ in range(100):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        time.sleep(0.05)
    raise SystemExit(f"no server came up on port {port}")


def call_seconds(connection: socket.socket, request: bytes) -> float:
    """Send one call, read the whole answer."""
    start = time.perf_counter()
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer or b'"NodeNames"' not in answer or not answer.endswith(b"}"):
        answer += connection.recv(65536)
    seconds = time.perf_counter() - start
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(answer.decode())
    return seconds


def filter_request(nodes: int) -> bytes:
    """Return a filter call as kube-scheduler writes it, with a pod of usual size."""
    container = {
        "name": "worker",
        "image": "registry.example/team/train:1",
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(20)],
        "resources": {"limits": {"gpupack.dev/gpu": "4", "cpu": "8", "memory": "64Gi"}},
    }
    metadata = {
        "name": "train-1-0",
        "namespace": "team",
        "uid": "0c7a5c0e-6e0e-4d59-8d34-9b6a1f3d9a11",
        "managedFields": [{"fieldsV1": {f"f:{index}": {} for index in range(100)}}],
    }
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    names = [f"node-{index:05}" for index in range(nodes)]
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":"))
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def measure(nodes: int, *, rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the milliseconds of every call by candidate."""
    request = filter_request(nodes)
    with contextlib.ExitStack() as stack:
        connections = {
            name: stack.enter_context(connected(serve, codec))
            for name, (serve, codec) in CANDIDATES.items()
            if "granian" not in name or importlib.util.find_spec("granian")
        }
        samples: dict[str, list[float]] = {name: [] for name in connections}
        for _ in range(rounds):
            for name, connection in connections.items():
                times = [call_seconds(connection, request) for _ in range(calls)]
                samples[name] += [seconds * 1e3 for seconds in times[5:]]
    return samples


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args()
    for nodes in (1000, 5000):
        samples = measure(nodes, rounds=options.rounds, calls=options.calls)
        base = statistics.median(next(iter(samples.values())))
        print(f"{nodes} NodeNames, {len(filter_request(nodes)) // 1024} KiB a call")
        for name, times in samples.items():
            median, tail = statistics.median(times), statistics.quantiles(times, n=100)[98]
            print(
                f"  {name:32} p50 {median:6.2f} ms  p99 {tail:6.2f} ms  ratio {median / base:.2f}"
            )


if __name__ == "__main__":
    main()
