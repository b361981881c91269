# SPDX-License-Identifier: Apache-2.0
"""What a connection bears before our code runs, byte by byte, on both servers."""

import asyncio
import contextlib
import json
import time

import pytest
from listening import listening
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gpupack_extender import endpoints, servers
from gpupack_extender.settings import Serving
from gpupack_httpserver import connections

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
CALL = HEAD + b"Content-Length: 2\r\n\r\nhi"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"


@pytest.fixture(params=[servers.verbs_server, servers.plan_server], ids=["verbs", "plans"])
async def port(request):
    async def echo(call):
        return PlainTextResponse(await call.body())

    app = endpoints.application([Route("/echo", echo, methods=["POST"])])
    async with listening(request.param(app, Serving())) as number:
        yield number


@contextlib.asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def send(writer, data):
    """Send all that the other side takes."""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()


async def everything(reader):
    """All that comes until the other side closes."""
    async with asyncio.timeout(30):
        return await reader.read()


def refusal(raw):
    """Status and reason of the last answer, which must be a Problem."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return int(head.split()[1]), json.loads(body)["reason"]


async def answered(port, data):
    async with connected(port) as (reader, writer):
        await send(writer, data)
        return refusal(await everything(reader))


GARBAGE = {
    "no HTTP": b"\x00\x01\x02\x03 garbage\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no such method": b"FETCH /echo HTTP/1.1\r\n\r\n",
    "no such version": b"GET /echo HTTP/7.7\r\n\r\n",
    "no path": b"POST HTTP/1.1\r\n\r\n",
    "a path outside ASCII": "POST /ü HTTP/1.1\r\n\r\n".encode(),
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
    "a websocket": HEAD + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "another protocol": HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\nxx",
    "a header without a colon": HEAD + b"nonsense\r\n\r\n",
    "a zero in a header": HEAD + b"a: \x00\r\n\r\n",
    "length is no number": HEAD + b"Content-Length: x\r\n\r\n",
    "length is negative": HEAD + b"Content-Length: -1\r\n\r\n",
    "length is beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
    "length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    "no such coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\nhi",
    "a coding before chunks": CHUNKED.replace(b"chunked", b"gzip, chunked"),
    "a chunk's length is no number": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nhi",
    "a chunk is longer than it says": CHUNKED[:-4] + b"hello\r\n",
    "headers after the body": CHUNKED + b"0\r\nAuthorization: x\r\n\r\n",
}


async def test_an_invalid_call_is_answered_with_400(port):
    answers = {name: await answered(port, sent) for name, sent in GARBAGE.items()}
    assert answers == dict.fromkeys(GARBAGE, (400, "BadRequest"))


TOO_MUCH = {
    "many headers": HEAD + b"h: x\r\n" * 200 + b"\r\n",
    "large headers": HEAD
    + b"".join(b"h%d: %s\r\n" % (i, b"x" * 2000) for i in range(50))
    + b"\r\n",
    "a header without end": HEAD + b"h: " + b"x" * 1_000_000,
    "a name without end": HEAD + b"x" * 1_000_000,
    "a path without end": b"POST /" + b"x" * 1_000_000,
    "empty lines without end": b"\r\n" * 500_000,
    "a chunk's extension without end": CHUNKED + b"2;" + b"x" * 1_000_000,
    "a header after the body without end": CHUNKED + b"0\r\nh: " + b"x" * 1_000_000,
}


async def test_a_head_has_an_end(port):
    answers = {name: await answered(port, sent) for name, sent in TOO_MUCH.items()}
    assert answers == dict.fromkeys(TOO_MUCH, (431, "RequestHeaderFieldsTooLarge"))


async def test_calls_follow_each_other_on_one_connection(port):
    async with connected(port) as (reader, writer):
        for _ in range(3):
            await send(writer, CALL)
            assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")


async def test_calls_sent_at_once_are_answered_in_order(port):
    async with connected(port) as (reader, writer):
        await send(writer, CALL * 50)
        for _ in range(50):
            assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")


async def test_garbage_behind_a_call_ends_the_connection(port):
    async with connected(port) as (reader, writer):
        await send(writer, CALL)
        await reader.readuntil(b"hi")
        await send(writer, b"\x00garbage\r\n\r\n")
        assert refusal(await everything(reader)) == (400, "BadRequest")


async def test_garbage_after_a_call_is_answered_once(port):
    async with connected(port) as (reader, writer):
        await send(writer, CALL + b"\x00garbage\r\n\r\n")
        assert refusal(await everything(reader)) == (400, "BadRequest")


SLOW = {
    "a first byte": b"P",
    "an empty line": b"\r\n",
    "a head": HEAD + b"h: ",
    "a body": HEAD + b"Content-Length: 2\r\n\r\nh",
    "chunks": CHUNKED,
}


async def test_a_call_must_come_in_time(port, monkeypatch):
    monkeypatch.setattr(connections, "CALL_SECONDS", 0.2)
    answers = {name: await answered(port, sent) for name, sent in SLOW.items()}
    assert answers == dict.fromkeys(SLOW, (408, "RequestTimeout"))


async def test_a_call_that_comes_byte_by_byte_must_come_in_time(port, monkeypatch):
    monkeypatch.setattr(connections, "CALL_SECONDS", 0.3)
    async with connected(port) as (reader, writer):
        answer = asyncio.create_task(everything(reader))
        began = time.monotonic()
        for byte in HEAD * 100:
            await send(writer, bytes([byte]))
            await asyncio.sleep(0.02)
            if answer.done():
                break
        assert refusal(await answer)[0] == 408
        assert time.monotonic() - began < 2


async def test_a_slow_call_after_a_good_one_is_answered_with_408(port, monkeypatch):
    monkeypatch.setattr(connections, "CALL_SECONDS", 0.2)
    async with connected(port) as (reader, writer):
        await send(writer, CALL)
        await reader.readuntil(b"hi")
        await send(writer, HEAD)
        assert refusal(await everything(reader)) == (408, "RequestTimeout")


async def test_the_rest_of_an_answered_call_is_awaited_for_a_limited_time(port, monkeypatch):
    monkeypatch.setattr(connections, "CALL_SECONDS", 0.2)
    async with connected(port) as (reader, writer):
        await send(writer, b"PUT" + HEAD[4:] + b"Content-Length: 99\r\n\r\n")
        assert refusal(await everything(reader)) == (405, "MethodNotAllowed")


async def test_a_connection_without_a_call_is_closed(monkeypatch):
    monkeypatch.setattr(servers, "PLAN_IDLE_SECONDS", 0.1)
    server = servers.plan_server(endpoints.application([]), Serving())
    async with listening(server) as port, connected(port) as (reader, _):
        assert await everything(reader) == b""


async def test_a_client_that_does_not_read_an_answer_loses_the_connection(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.3)
    written = asyncio.Event()

    async def much(_):
        async def pieces():
            for _ in range(64):
                yield b"x" * (1 << 20)
            written.set()

        return StreamingResponse(pieces())

    app = endpoints.application([Route("/much", much)])
    server = servers.plan_server(app, Serving())
    async with listening(server) as port, connected(port) as (reader, writer):
        await send(writer, b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(30):
            await written.wait()
            assert len(await everything(reader)) < 64 << 20


async def test_a_client_that_reads_an_answer_slowly_gets_it_whole(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.5)

    async def much(_):
        return PlainTextResponse(b"x" * (8 << 20))

    app = endpoints.application([Route("/much", much)])
    server = servers.plan_server(app, Serving())
    async with listening(server) as port, connected(port) as (reader, writer):
        await send(writer, b"GET /much HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = 0
        while piece := await reader.read(1 << 20):
            got += len(piece)
            await asyncio.sleep(0.01)
        assert got > 8 << 20
