# SPDX-License-Identifier: Apache-2.0
"""Nodes from a REST API over TLS, for callers that may not read GPUNodes."""

import json
import ssl

import msgspec
import pytest
from aiohttp import web
from extender_builders import gpu_node, node, pod, whole
from fake_api import status
from self_signed import self_signed

from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.settings import Settings
from gpupack_scheduler.decisions import Decisions

REFUSED = 'gpunodes.gpupack.dev is forbidden: User "jane" cannot list resource "gpunodes"'
GPUNODES = "/apis/gpupack.dev/v1beta1/gpunodes"


@pytest.fixture
def refusing(server, monkeypatch):
    """Return an API server that refuses reads of GPUNodes."""
    read = server.read

    def refuse(path, *_):
        return status(403, "Forbidden", REFUSED) if path.startswith(GPUNODES) else read(path)

    monkeypatch.setattr(server, "read", refuse)
    return server


@pytest.fixture
async def rest(tmp_path, monkeypatch):
    """Answer `nodes` like gpupack-api, one node a page; yield the options that name it."""
    monkeypatch.setenv("GPUPACK_TOKEN", "secret")
    model = ReadModel(Settings(decisions=Decisions()))
    for name in ("a", "b"):
        model.ledger.nodes.upsert(node(name))
        model.ledger.gpus.upsert(gpu_node(name, failed=(3,)))
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    views = NodeViews(model.ledger)

    async def nodes(request):
        assert request.headers["Authorization"] == "Bearer secret"
        left = [each for each in views.all() if each.node_name > request.query.get("after", "")]
        more = left[0].node_name if len(left) > 1 else ""
        body = msgspec.json.encode({"nodes": left[:1], "next": more})
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/gpu/nodes", nodes)
    certificate, key = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=context)
    await site.start()
    yield "--server", f"https://localhost:{runner.addresses[0][1]}", "--ca", str(certificate)
    await runner.cleanup()


async def test_without_permission_for_gpunodes_the_rest_api_is_used(refusing, rest, capsys):
    assert await refusing.called("nodes", "-o", "wide", *rest) == 0
    shown, said = capsys.readouterr()
    heading, a, b = (line.split() for line in shown.splitlines())
    assert heading[:3] == ["NAME", "MODEL", "GPUS"]
    assert [a[0], *a[5:]] == ["a", "4", "2", "1", "0", "3", "gpupack.dev/gpu:", "4"]
    assert [b[0], *b[5:]] == ["b", "4", "3", "0", "0", "3", "gpupack.dev/gpu:", "4"]
    assert "data from the REST API, since you may not read GPUNodes; it omits drivers" in said


async def test_unavailable_fields_are_null_in_documents(refusing, rest, capsys):
    assert await refusing.called("nodes", "-o", "json", *rest) == 0
    row = json.loads(capsys.readouterr().out)["nodes"][0]
    assert (row["name"], row["driver_version"], row["mode"], row["held_by"]) == ("a", *[None] * 3)


async def test_single_gpus_are_shown_from_the_rest_api(refusing, rest, capsys):
    assert await refusing.called("gpu", "show", "b", "3", *rest) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:5] == ["INDEX", "UUID", "MODEL", "MEMORY", "STATE"]
    assert "GiB  Failed" in row


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpu", "show", "c"], "there is no node 'c' with GPUs; there are: a, b"),
        (["gpu", "show", "b", "9"], "node b has no GPU '9'; it has 0, 1, 2, 3"),
    ],
)
async def test_a_missing_node_or_gpu_is_reported_with_the_existing_ones(
    refusing, rest, capsys, arguments, says
):
    assert await refusing.called(*arguments, *rest) == 66
    assert says in capsys.readouterr().err


async def test_both_errors_are_reported_where_both_sources_fail(refusing, capsys):
    away = ("--server", "https://localhost:1")
    assert await refusing.called("nodes", *away) == 77
    said = capsys.readouterr().err
    assert "gpunodes.gpupack.dev is forbidden" in said
    assert "is not available: the REST API at https://localhost:1/" in said
    assert "GPUPACK_SERVER and GPUPACK_CA" in said
    assert "need no such right" not in said


async def test_with_permission_for_gpunodes_the_rest_api_is_not_called(server, capsys):
    server.put(
        f"{GPUNODES}/a",
        {
            "metadata": {"name": "a"},
            "status": {
                "mode": "observed",
                "gpus": 2,
                "devices": [
                    {
                        "uuid": f"GPU-{index}",
                        "index": index,
                        "model": "H100",
                        "memoryMib": 81559,
                        "memoryMiB": 81559,
                        "health": "Healthy",
                        "resource": "nvidia.com/gpu",
                    }
                    for index in range(2)
                ],
            },
        },
    )
    assert await server.called("nodes", "-o", "wide") == 0
    assert "observed  nvidia.com/gpu: 2" in capsys.readouterr().out
