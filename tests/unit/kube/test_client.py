# SPDX-License-Identifier: Apache-2.0
import pytest
from aiohttp import web

from gpupack_kube import errors
from gpupack_kube.resources import LEASES, PODS


async def test_an_object_is_decoded_into_its_view(serve):
    async def handler(request):
        return web.json_response({"metadata": {"name": "a"}, "status": {"phase": "Running"}})

    async with serve(handler) as api:
        pod = await api.get(PODS, "a", namespace="n")
    assert (pod.metadata.name, pod.status.phase) == ("a", "Running")


async def test_the_token_of_the_kubeconfig_is_sent(serve):
    async def handler(request):
        return web.json_response({"metadata": {"name": request.headers["Authorization"]}})

    async with serve(handler) as api:
        pod = await api.get(PODS, "a", namespace="n")
    assert pod.metadata.name == "Bearer secret"


async def test_a_dropped_connection_is_unreachable_and_not_the_http_librarys_error(serve):
    async def handler(request):
        request.transport.close()
        return web.Response()

    async with serve(handler) as api:
        with pytest.raises(errors.Unreachable, match=r"PUT .*leases/a"):
            await api.replace(LEASES, "a", {}, namespace="n")


async def test_an_answer_that_is_not_json_is_an_error_of_ours(serve):
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
