# SPDX-License-Identifier: Apache-2.0
"""The average usage of namespaces: written to statuses, and read at a start."""

import dataclasses

import msgspec
import pytest
from extender_builders import World
from fake_api import ApiServer, connected

from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_crds.quota import MAX_AVERAGES, CohortStatus
from gpupack_extender.queueing.reporting import QuotaReporter
from gpupack_queue import ANY
from gpupack_scheduler.queueing.quotas import averages
from gpupack_scheduler.queueing.settings import QueueSettings

HOUR = 3600.0
GROUP = "/apis/gpupack.dev/v1beta1"
CLUSTER = f"{GROUP}/gpucohorts/cluster"
LAB = f"{GROUP}/gpucohorts/lab"
QUOTA = f"{GROUP}/namespaces/team/gpuquotas/default"


def world_of(half_life=HOUR):
    """Two nodes of four GPUs, at 1000 s."""
    built = World()
    queue = QueueSettings(half_life_seconds=half_life)
    built.decisions = dataclasses.replace(built.decisions, queue=queue)
    built.use(built.new_ledger())
    built.add_node("a")
    built.add_node("b")
    return built


class Cluster:
    """A process that decides and reports, and the API server that it writes to."""

    def __init__(self, world, server, api):
        self.world, self.server = world, server
        self.reporter = QuotaReporter(api, world.quotas, world.owner.observed, decides=lambda: True)

    async def look(self, *, after=0.0):
        """The reporter looks, and the watch shows what it wrote; the answer: what it wrote."""
        self.world.now += after
        before = len(self.server.writes)
        await self.reporter.report()
        self.show()
        return [
            path.rpartition("gpupack.dev/v1beta1/")[2] for _, path in self.server.writes[before:]
        ]

    def show(self):
        for path, item in self.server.objects.items():
            if "/gpucohorts/" in path:
                self.world.quotas.cohorts.upsert(msgspec.convert(item, GpuCohort))
            else:
                self.world.quotas.quotas.upsert(msgspec.convert(item, GpuQuota))

    def put(self, path, *, namespace="", status=None, **spec):
        meta = {"name": path.rpartition("/")[2], "uid": path, "resourceVersion": "1"}
        meta |= {"namespace": namespace} if namespace else {}
        given = {} if status is None else {"status": status}
        self.server.put(path, {"metadata": meta, "spec": spec, **given})
        self.show()

    def averages(self, path=CLUSTER):
        """By namespace, as they stand in a status."""
        found = self.server.objects[path].get("status", {}).get("averages", ())
        return {each["namespace"]: float(each["gpus"]) for each in found}


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
async def api(server):
    async with connected(server.app()) as (connection, _):
        yield connection


@pytest.fixture
def cluster(server, api):
    return Cluster(world_of(), server, api)


def felt(world, namespace="team"):
    """Milli-GPU, as this process knows them now."""
    return world.owner.queue.averages(world.now).get(namespace, {}).get(ANY, 0.0)


def status(*amounts, at="1970-01-01T00:16:40Z"):
    """A status as of 1000 s; amounts of namespaces, of any model."""
    listed = [{"namespace": each, "model": "*", "gpus": gpus} for each, gpus in amounts]
    return {"averagedAt": at, "averages": listed}


@pytest.mark.parametrize("wrong", [-1, 1e9, "long"])
def test_a_half_life_is_a_time(wrong):
    assert (
        msgspec.convert({"halfLifeSeconds": 60}, QueueSettings).as_rules().half_life_seconds == 60
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"halfLifeSeconds": wrong}, QueueSettings)


async def test_a_cohort_that_stands_for_the_cluster_is_made_once(cluster):
    assert await cluster.look() == ["gpucohorts"]
    assert await cluster.look() == ["gpucohorts/cluster/status"]
    assert await cluster.look() == []
    assert cluster.server.objects[CLUSTER]["status"]["average"] == "0"


async def test_without_a_half_life_averages_are_removed_and_not_written(server, api):
    cluster = Cluster(world_of(half_life=0.0), server, api)
    assert await cluster.look() == []
    cluster.put(LAB, status=status(("team", "2")))
    cluster.world.decide()
    await cluster.look()
    assert "averages" not in server.objects[LAB]["status"]
    assert "averagedAt" not in server.objects[LAB]["status"]


async def test_averages_are_written_once_a_minute_and_for_as_long_as_there_are_any(cluster):
    await cluster.look()
    cluster.world.asks("train", gpus=4)
    await cluster.look(after=10.0)
    written = [await cluster.look(after=5.0) for _ in range(24)]
    assert [number for number, paths in enumerate(written) if paths] == [11, 23]
    assert cluster.averages() == {"team": pytest.approx(felt(cluster.world) / 1000, abs=0.001)}
    cluster.world.ends("train")
    cluster.world.decide()
    await cluster.look(after=60.0)
    for _ in range(20):
        await cluster.look(after=HOUR)
    assert cluster.averages() == {}
    await cluster.look(after=HOUR)
    assert await cluster.look(after=HOUR) == []


async def test_a_namespace_stands_in_its_cohort_and_moves_with_its_quota(cluster):
    cluster.put(LAB)
    cluster.put(QUOTA, namespace="team", cohort="lab")
    await cluster.look()
    cluster.world.asks("train", gpus=4)
    await cluster.look(after=600.0)
    assert (cluster.averages(LAB).keys(), cluster.averages().keys()) == ({"team"}, set())
    shown = cluster.server.objects[QUOTA]["status"]["average"]
    assert float(shown) == pytest.approx(4 * (1 - 0.5 ** (600 / HOUR)), abs=0.001)
    assert cluster.server.objects[CLUSTER]["status"]["average"] == shown
    cluster.put(QUOTA, namespace="team", cohort="nowhere")
    cluster.world.decide()
    await cluster.look(after=60.0)
    assert (cluster.averages(LAB).keys(), cluster.averages().keys()) == (set(), {"team"})


async def test_a_quota_or_cohort_may_name_the_cluster_itself(cluster):
    cluster.put(CLUSTER)
    cluster.put(LAB, parent="cluster")
    cluster.put(QUOTA, namespace="team", cohort="cluster", gpus=[{"model": "*", "nominal": 3}])
    cluster.world.asks("train", gpus=4)
    await cluster.look()
    assert cluster.world.owner.observed.problems == {}
    tree = cluster.world.owner.queue.state.quota.tree
    assert {node.id for node in tree.all()} == {"cohort/", "cohort/lab", "tenant/team"}
    shown = cluster.server.objects[CLUSTER]["status"]
    assert [shown[name] for name in ("nominal", "used", "borrowed", "lent")] == ["3", "4", "1", "0"]


async def test_a_new_process_goes_on_where_the_last_one_was(cluster, server, api):
    await cluster.look()
    cluster.world.asks("train", gpus=4)
    cluster.world.written("train")
    await cluster.look(after=HOUR)
    kept = server.objects[CLUSTER]["status"]["averagedAt"]
    await cluster.look(after=30.0)
    assert server.objects[CLUSTER]["status"]["averagedAt"] == kept
    restarted = Cluster(world_of(), server, api)
    restarted.world.now = cluster.world.now = cluster.world.now + HOUR
    claims = cluster.world.ledger.plan_of(cluster.world.attempt("train"))
    restarted.world.shows("train", claims)
    restarted.show()
    restarted.world.decide()
    assert felt(restarted.world) == pytest.approx(felt(cluster.world), abs=1)
    assert felt(restarted.world) == pytest.approx(3000, rel=0.02)


async def test_a_restarted_queue_keeps_the_average_usage(cluster):
    cluster.put(CLUSTER, status=status(("team", "2")))
    cluster.world.decide()
    cluster.world.owner.restart()
    cluster.world.decide()
    assert felt(cluster.world) == pytest.approx(2000)


async def test_a_tenant_in_two_statuses_counts_by_the_later_one(cluster):
    cluster.put(CLUSTER, status=status(("team", "1")))
    cluster.put(LAB, status=status(("team", "2"), at="1970-01-01T00:00:00Z"))
    cluster.world.decide()
    assert felt(cluster.world) == pytest.approx(1000)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("-5", 0), ("nan", 0), ("-inf", 0), ("two", 0), ("", 0), ("1e300", 8000), ("inf", 8000)],
)
async def test_averages_beyond_the_limits_of_a_status_are_cut_off(cluster, gpus, expected):
    cluster.put(CLUSTER, status=status(("team", gpus), ("other", "1")))
    cluster.world.decide()
    assert (felt(cluster.world), felt(cluster.world, "other")) == (expected, 1000)


@pytest.mark.parametrize("at", ["", "yesterday", "1970-01-01T00:00:00", "99999-01-01T00:00:00Z"])
async def test_averages_of_no_moment_count_nothing_and_are_replaced(cluster, at):
    cluster.put(CLUSTER, status=status(("team", "2"), at=at))
    cluster.world.decide()
    assert felt(cluster.world) == 0
    await cluster.look()
    assert cluster.averages() == {}


async def test_a_moment_to_come_is_now_and_the_status_is_replaced(cluster):
    cluster.put(CLUSTER, status=status(("team", "2"), at="9999-01-01T00:00:00Z"))
    cluster.world.decide()
    assert felt(cluster.world) == 2000
    await cluster.look(after=1.0)
    written = averages.read(
        [msgspec.convert(cluster.server.objects[CLUSTER]["status"], CohortStatus)]
    )
    assert [kept.at for kept in written] == [1001.0]


async def test_of_more_averages_than_a_status_takes_the_largest_are_written(cluster):
    await cluster.look()
    history = cluster.world.owner.queue.state.quota.history
    for n in range(MAX_AVERAGES):
        history.averages[f"{n:063}"] = {"": 1000.0 + n, "H" * 64: 5.5}
    await cluster.look()
    listed = cluster.server.objects[CLUSTER]["status"]["averages"]
    assert len(listed) == MAX_AVERAGES
    assert {each["model"] for each in listed} == {"*"}
    assert len(msgspec.json.encode(listed)) < 200_000
