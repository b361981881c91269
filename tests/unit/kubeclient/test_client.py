# SPDX-License-Identifier: Apache-2.0
import asyncio
import gc
import socket
import ssl
import threading

import pytest
from aiohttp import web
from fake_api import kubeconfig
from self_signed import self_signed

from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api, Opened
from gpupack_kubeclient.resources import LEASES, PODS


async def test_an_object_is_decoded_into_its_view(serve):
    async def handler(request):
        return web.json_response({"metadata": {"name": "a"}, "status": {"phase": "Running"}})

    async with serve(handler) as api:
        pod = await api.get(PODS, "a", namespace="n")
    assert (pod.metadata.name, pod.status.phase) == ("a", "Running")


async def test_the_token_of_the_kubeconfig_is_not_sent_in_the_clear(serve):
    async def handler(request):
        return web.json_response({"metadata": {"name": request.headers.get("Authorization", "")}})

    async with serve(handler) as api:
        pod = await api.get(PODS, "a", namespace="n")
    assert pod.metadata.name == ""


async def test_a_dropped_connection_is_unreachable_and_not_the_http_librarys_error(serve):
    async def handler(request):
        request.transport.close()
        return web.Response()

    async with serve(handler) as api:
        with pytest.raises(errors.Unreachable, match=r"PUT .*leases/a"):
            await api.replace(LEASES, "a", {}, namespace="n")


async def test_a_refused_connection_is_reported_by_address_and_reason():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with kubeconfig(f"https://127.0.0.1:{port}", **{"insecure-skip-tls-verify": True}) as path:
        async with Api.connect({"KUBECONFIG": path}) as api:
            with pytest.raises(errors.Unreachable) as raised:
                await api.get(PODS, "a", namespace="n")
    assert str(raised.value).endswith(
        f"no answer from the API server: cannot connect to 127.0.0.1:{port}: "
        f"Connect call failed ('127.0.0.1', {port})"
    )


async def test_an_answer_that_is_not_json_is_a_kube_error(serve):
    async def handler(request):
        return web.Response(text="<html>")

    async with serve(handler) as api:
        with pytest.raises(errors.KubeError, match="cannot read a Pod"):
            await api.get(PODS, "a", namespace="n")


async def test_a_watch_that_is_too_old_is_expired(serve):
    async def handler(request):
        gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "old"}}
        return web.json_response(gone)

    async with serve(handler) as api:
        with pytest.raises(errors.Expired):
            [event async for event in api.watch(PODS, resourceVersion="1")]


def test_a_watch_that_is_left_keeps_no_connection_to_a_server_that_says_no_goodbye(tmp_path):
    """Left open, its socket is found when the loop is gone, as a warning of a later test."""
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    left = threading.Event()

    def answer(listening):
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            left.wait()

    async def watch_and_leave(path):
        async with Api.connect({"KUBECONFIG": path}) as api:
            async for event in api.watch(PODS, resourceVersion="1"):
                assert isinstance(event, Opened)
                asyncio.current_task().cancel()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=answer, args=(listening,))
        server.start()
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        trusting = {"insecure-skip-tls-verify": True}
        with kubeconfig(address, **trusting) as path, pytest.raises(asyncio.CancelledError):
            asyncio.run(watch_and_leave(path))
        left.set()
        server.join()
    gc.collect()
