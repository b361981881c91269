# SPDX-License-Identifier: Apache-2.0
"""Usage and energy from the agents' readings, from HTTPS to the sums."""

import pytest
from accounts import bound_pod
from agent_stand_ins import answering, exported
from extender_builders import uuid

from gpupack_apiserver.accounts.readings import AgentReadings
from gpupack_cost import Group


async def hours_of(accounts, poller):
    """Return the sums of a pod that held GPU 0 of node a for two measurements of 30 s."""
    accounts.readings = AgentReadings(poller)
    accounts.restart()
    accounts.look()
    accounts.show("pods", bound_pod("one", bound=30))
    accounts.look()
    accounts.look()
    (found,) = accounts.lines(Group.NAMESPACE)
    return found.amounts


async def test_usage_and_energy_come_from_the_nodes_agent(serve, agents, round_of, accounts):
    agents.at["a"] = "127.0.0.1"
    text = exported(uuid("a", 0), power=300, busy=25)
    found = await hours_of(accounts, await round_of(await serve(answering(text))))
    assert found.used_hours == pytest.approx(60 * 0.25 / 3600)
    assert found.idle_hours == pytest.approx(60 * 0.75 / 3600)
    assert found.unknown_hours == 0
    assert found.energy_kwh == pytest.approx(300 * 60 / 3.6e6)


async def test_an_agents_readings_of_another_nodes_gpu_are_ignored(
    serve, agents, round_of, accounts
):
    agents.at["b"] = "127.0.0.1"
    text = exported(uuid("a", 0), power=300, busy=100)
    found = await hours_of(accounts, await round_of(await serve(answering(text))))
    assert (found.used_hours, found.energy_kwh) == (None, None)
    assert found.unknown_hours == pytest.approx(60 / 3600)
