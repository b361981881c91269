# SPDX-License-Identifier: Apache-2.0
"""The cluster places jobs as the simulator does.

Jobs come and go, one at a time, through API server, stock kube-scheduler and extender, on nodes
that kwok simulates; and through the simulator, on a snapshot of these nodes. Every job must get
the same node and the same devices, or be refused by both. The extender gets the mix of the
jobs: what it learned from arrivals would depend on when its solver was ready.
"""

import os
import time

import pytest
from truth_cluster import deciding
from truth_fleet import fleet
from truth_jobs import drawn_jobs, forecast_of
from truth_nodes import connected, simulated_nodes, state_of
from truth_outcomes import difference, play
from truth_settings import settings_kept, use
from truth_simulated import by_simulator

DETERMINISTIC = (
    "first-fit best-fit worst-fit dot-product gpu-packing gpu-clustering fgd default"  # not random
)
ARRIVALS = int(os.environ.get("TRUTH_ARRIVALS", "2000"))
POLICIES = os.environ.get("TRUTH_POLICIES", DETERMINISTIC).split()
SEED = int(os.environ.get("TRUTH_SEED", "1"))
FLEET = fleet(2 if ARRIVALS > 500 else 1)
"""So many nodes that most jobs find others running."""


@pytest.fixture(scope="module", autouse=True)
def equipped(cluster, system):
    with simulated_nodes(cluster, FLEET), settings_kept(system):
        yield


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_job_goes_where_the_simulator_says(policy, cluster, system, idle, kube, tell):
    jobs = drawn_jobs(seed=SEED, arrivals=ARRIVALS, shapes=FLEET.values())
    forecast = forecast_of(jobs)
    use(system, policy, forecast)
    async with connected(cluster) as api:
        state = await state_of(api)
        simulated = by_simulator(state, jobs, policy, forecast)
        async with deciding(api, kube.namespace) as decider:
            began = time.monotonic()
            played = await play(jobs, decider, simulated)
            seconds = time.monotonic() - began
        assert await state_of(api) == state
    refused = sum(place is None for place in played.outcomes.values())
    differing = difference(jobs, simulated=simulated, found=played.outcomes)
    tell(
        f"{policy}: {len(played.outcomes)} arrivals, {refused} refused, "
        f"{'placements differ' if differing else 'identical placements'}, "
        f"{played.events / seconds:.1f} events/s"
    )
    assert differing == ""
    assert 0 < refused < len(jobs) / 2
