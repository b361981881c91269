# SPDX-License-Identifier: Apache-2.0
"""The statuses of reservations, as they are written to the API server."""

import msgspec
import pytest
from fake_api import ApiServer, connected

from gpupack_crds.kinds import GpuReservation
from gpupack_extender.queueing.window_reporting import WindowReporter

PATH = "/apis/gpupack.dev/v1beta1/namespaces/lab/gpureservations/day"


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
async def reporter(world, server):
    meta = {"namespace": "lab", "name": "day", "uid": "u", "resourceVersion": "7", "generation": 3}
    spec = {
        "model": "H100",
        "gpus": 2,
        "startTime": "1970-01-01T00:30:00Z",
        "endTime": "1970-01-01T01:30:00Z",
    }
    server.put(PATH, {"metadata": meta, "spec": spec})
    show(world, server)
    world.decide()
    async with connected(server.app()) as (api, _):
        yield WindowReporter(api, world.quotas, world.owner.observed, decides=lambda: True)


def show(world, server):
    """The watch shows what the API server holds."""
    world.quotas.reservations.upsert(msgspec.convert(server.objects[PATH], GpuReservation))


async def test_a_status_is_written_once_while_nothing_changes(world, server, reporter):
    await reporter.report()
    status = server.objects[PATH]["status"]
    assert (status["phase"], status["observedGeneration"]) == ("Refused", 3)
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Accepted", "QuotaExceeded")
    writes = list(server.writes)
    show(world, server)
    await reporter.report()
    assert server.writes == writes


async def test_a_reservation_that_was_replaced_during_the_write_is_written_later(
    world, server, reporter
):
    edited = server.objects[PATH]["metadata"] | {"resourceVersion": "8"}
    server.put(PATH, server.objects[PATH] | {"metadata": edited})
    await reporter.report()
    assert "status" not in server.objects[PATH]
    show(world, server)
    await reporter.report()
    assert server.objects[PATH]["status"]["gpus"] == "2"
