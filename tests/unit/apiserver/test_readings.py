# SPDX-License-Identifier: Apache-2.0
"""Readings of GPUs from agents that work, are slow, endless, broken or lie."""

import asyncio
import contextlib

import pytest
from agent_stand_ins import answering, exported
from aiohttp import web
from extender_builders import uuid

from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.readings import agent_poller
from gpupack_apiserver.readings.agent_pods import AgentPods
from gpupack_apiserver.readings.agent_poller import readings
from gpupack_apiserver.readings.reading import Reading
from gpupack_kubeclient import objects


async def test_readings_are_rounded_to_whole_numbers(serve, agents, round_of):
    agents.at["a"] = "127.0.0.1"
    poller = await round_of(await serve(answering(exported(uuid("a", 0)))))
    assert poller.get("a") == {uuid("a", 0): Reading(61, 403, 97)}
    assert poller.get("b") == {}


async def test_views_of_gpus_have_readings_or_null(serve, agents, round_of, model):
    agents.at["a"] = "127.0.0.1"
    poller = await round_of(await serve(answering(exported(uuid("a", 1)))))
    first, second = NodeViews(model.ledger, poller).all()
    read = [(each.temperature_celsius, each.power_watts) for each in first.devices]
    assert read == [(None, None), (61, 403), (None, None), (None, None)]
    assert {each.busy_percent for each in second.devices} == {None}


async def test_unchanged_readings_keep_the_view(serve, agents, round_of, model):
    agents.at["a"] = "127.0.0.1"
    text = {"now": exported(uuid("a", 0))}

    async def handler(_):
        return web.Response(text=text["now"])

    port = await serve(handler)
    views = NodeViews(model.ledger, await round_of(port))
    before = views.all()[0]
    text["now"] = exported(uuid("a", 0), temperature=61.2)
    await round_of(port)
    assert views.all()[0] is before
    text["now"] = exported(uuid("a", 0), temperature=70)
    await round_of(port)
    assert views.all()[0].devices[0].temperature_celsius == 70


async def test_an_agents_readings_count_only_for_its_own_node(serve, agents, round_of, model):
    agents.at["a"] = "127.0.0.1"
    poller = await round_of(await serve(answering(exported(uuid("b", 0), temperature=200))))
    _, second = NodeViews(model.ledger, poller).all()
    assert second.devices[0].temperature_celsius is None


async def test_agents_of_unknown_nodes_are_not_read(serve, agents, round_of):
    agents.at["stranger"] = "127.0.0.1"
    asked = []

    async def handler(_):
        asked.append(1)
        return web.Response(text="")

    await round_of(await serve(handler))
    assert asked == []


async def _endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b"x" * 65536)
            await asyncio.sleep(0.001)  # The client shares the event loop and must have a turn.
    return response


async def _slow(_):
    await asyncio.sleep(60)


async def _elsewhere(_):
    raise web.HTTPFound("https://169.254.169.254/metrics")


async def _binary(_):
    return web.Response(body=b"\xff\x00" * 1000)


async def _refuses(_):
    return web.Response(status=403)


@pytest.mark.parametrize("hostile", [_endless, _slow, _elsewhere, _binary, _refuses])
async def test_a_hostile_or_broken_agent_does_not_affect_others(
    hostile, serve, agents, round_of, monkeypatch
):
    monkeypatch.setattr(agent_poller, "ANSWER_SECONDS", 0.5)
    agents.at |= {"a": "127.0.0.1", "b": "127.0.0.1"}
    turn = iter((hostile, answering(exported("GPU-b"))))

    async def handler(request):
        return await next(turn)(request)

    async with asyncio.timeout(30):
        poller = await round_of(await serve(handler))
    # The order of the two is not defined.
    assert sorted([len(poller.get("a")), len(poller.get("b"))]) == [0, 1]


async def test_an_agent_with_a_wrong_certificate_is_not_trusted(serve, agents, round_of, caplog):
    agents.at["a"] = "127.0.0.1"
    port = await serve(answering(exported("GPU-a")))
    poller = await round_of(port, host="gpupack-metrics.gpupack-system.svc")
    assert poller.get("a") == {}
    assert "the agent of node a has no readings" in caplog.text


async def test_the_last_readings_are_valid_for_a_limited_time(serve, agents, round_of, clock):
    agents.at["a"] = "127.0.0.1"
    poller = await round_of(await serve(answering(exported("GPU-a"))))
    broken = await serve(_refuses)
    clock.now += 60
    await round_of(broken)
    assert poller.get("a")
    clock.now += agent_poller.STALE_SECONDS
    assert poller.get("a") == {}


def pod(name, *, node="a", ip="10.0.0.1", phase="Running"):
    return objects.Pod(
        metadata=objects.ObjectMeta(name=name, uid=name),
        spec=objects.PodSpec(node_name=node),
        status=objects.PodStatus(phase=phase, pod_ip=ip),
    )


def test_addresses_of_agents_come_from_their_running_pods():
    store = AgentPods()
    store.replace([pod("one"), pod("two", node="b", phase="Pending"), pod("three", ip="")])
    assert store.addresses() == {"a": "10.0.0.1"}
    store.upsert(pod("two", node="b", ip="10.0.0.2"))
    store.remove(pod("one"))
    assert store.addresses() == {"b": "10.0.0.2"}


def test_readings_of_a_slice_are_not_those_of_the_gpu():
    line = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",GPU_I_ID="3"} 60\n'
    assert readings(line) == {}
