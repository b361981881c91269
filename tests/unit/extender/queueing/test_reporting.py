# SPDX-License-Identifier: Apache-2.0
"""The statuses of quotas, as they are written to the API server."""

import msgspec
import pytest
from fake_api import ApiServer, connected

from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_extender.queueing.reporting import QuotaReporter

QUOTA = "/apis/gpupack.dev/v1beta1/namespaces/team/gpuquotas/default"
COHORT = "/apis/gpupack.dev/v1beta1/gpucohorts/all"


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
async def reporter(world, server):
    spec = {"gpus": [{"model": "*", "nominal": 2}]}
    for path, kind, store, where in (
        (QUOTA, GpuQuota, world.quotas.quotas, {"namespace": "team", "name": "default"}),
        (COHORT, GpuCohort, world.quotas.cohorts, {"name": "all"}),
    ):
        meta = where | {"uid": path, "resourceVersion": "7", "generation": 3}
        stored = server.put(path, {"metadata": meta, "spec": spec})
        store.upsert(msgspec.convert(stored, kind))
    world.decide()
    async with connected(server.app()) as (api, _):
        yield QuotaReporter(api, world.quotas, world.owner.observed, decides=lambda: True)


def show(world, server):
    """The watch shows what the API server holds."""
    world.quotas.quotas.upsert(msgspec.convert(server.objects[QUOTA], GpuQuota))
    world.quotas.cohorts.upsert(msgspec.convert(server.objects[COHORT], GpuCohort))


async def test_unchanged_usage_is_written_once(world, server, reporter):
    world.asks("train")
    await reporter.report()
    assert server.objects[QUOTA]["status"]["used"] == "1"
    assert server.objects[QUOTA]["status"]["observedGeneration"] == 3
    assert server.objects[COHORT]["status"]["nominal"] == "2"
    writes = list(server.writes)
    show(world, server)
    await reporter.report()
    assert server.writes == writes


async def test_a_quota_that_was_edited_during_the_write_is_written_later(world, server, reporter):
    edited = server.objects[QUOTA]["metadata"] | {"resourceVersion": "8"}
    server.put(QUOTA, server.objects[QUOTA] | {"metadata": edited})
    await reporter.report()
    assert "status" not in server.objects[QUOTA]
    show(world, server)
    await reporter.report()
    assert server.objects[QUOTA]["status"]["nominal"] == "2"


async def test_a_quota_that_the_cluster_cannot_meet_gets_a_condition_once(world, server, reporter):
    spec = {"gpus": [{"model": "H1000", "nominal": 1}]}
    world.quotas.quotas.upsert(
        msgspec.convert(server.put(QUOTA, server.objects[QUOTA] | {"spec": spec}), GpuQuota)
    )
    world.decide()
    await reporter.report()
    (condition,) = server.objects[QUOTA]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("CapacityMissing", "True")
    assert condition["observedGeneration"] == 3
    assert "conditions" not in server.objects[COHORT]["status"]
    writes = list(server.writes)
    show(world, server)
    world.now += 60
    await reporter.report()
    assert server.writes == writes
