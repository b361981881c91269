# SPDX-License-Identifier: Apache-2.0
"""What was learned of the requests to come, as it is written to the API server."""

import msgspec
import pytest
from fake_api import ApiServer, connected

from gpupack_crds.kinds import GpuCohort
from gpupack_extender.queueing.forecast_writer import ForecastWriter
from gpupack_extender.queueing.reporting import QuotaReporter
from gpupack_placement import DemandLearner, Request, RequestMix
from gpupack_placement.learner import FIRST_FORECAST_ARRIVALS
from gpupack_scheduler.published_forecast import PublishedForecast

COHORT = "/apis/gpupack.dev/v1beta1/gpucohorts/cluster"
ONE = Request(gpus=1)


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
def learner():
    made = DemandLearner()
    for number in range(FIRST_FORECAST_ARRIVALS):
        made.record_arrival(Request(gpus=100) if number % 5 == 0 else ONE)
    return made


@pytest.fixture
async def writer(world, server, learner):
    async with connected(server.app()) as (api, _):
        yield ForecastWriter(
            api,
            world.quotas,
            learner,
            can_serve=lambda asked: asked.gpus < 100,
            decides=lambda: True,
        )


def show(world, server):
    """The watch shows what the API server holds."""
    world.quotas.cohorts.upsert(msgspec.convert(server.objects[COHORT], GpuCohort))


def hold(server, **changes):
    meta = {"name": "cluster", "uid": "u", "resourceVersion": "7", **changes}
    server.put(COHORT, {"metadata": meta, "spec": {}})


async def test_a_forecast_that_is_due_is_written_once(world, server, writer):
    hold(server)
    show(world, server)
    await writer.look()
    (demand,) = server.objects[COHORT]["status"]["demandForecast"]["demands"]
    assert demand == {"count": 1_000_000, "gpus": 1}
    writes = list(server.writes)
    show(world, server)
    await writer.look()
    assert server.writes == writes


async def test_the_cohort_is_made_where_there_is_none(world, server, writer):
    await writer.look()
    assert server.writes[-1][:2] == ("POST", COHORT.rpartition("/")[0])
    hold(server)
    show(world, server)
    await writer.look()
    assert "demandForecast" in server.objects[COHORT]["status"]


async def test_who_reads_it_knows_what_was_learned_but_for_what_no_node_could_take(
    world, server, writer
):
    hold(server)
    show(world, server)
    await writer.look()
    show(world, server)
    read = PublishedForecast(world.quotas)
    assert read.due()
    assert read.take_forecast().mix == RequestMix.of([(ONE, 1)])


async def test_a_cohort_that_was_edited_during_the_write_is_written_later(world, server, writer):
    hold(server)
    show(world, server)
    hold(server, resourceVersion="8")
    await writer.look()
    assert "status" not in server.objects[COHORT]
    show(world, server)
    await writer.look()
    assert "demandForecast" in server.objects[COHORT]["status"]


async def test_a_write_of_usage_preserves_the_demand_forecast(world, server, writer):
    hold(server)
    show(world, server)
    await writer.look()
    show(world, server)
    world.asks("train")
    async with connected(server.app()) as (api, _):
        reporter = QuotaReporter(api, world.quotas, world.owner.observed, decides=lambda: True)
        await reporter.report()
    status = server.objects[COHORT]["status"]
    assert status["used"] == "1"
    assert status["demandForecast"]["demands"]
