# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, NodesRequest
from gpupack_operator.decision.nodes import NodesRequestAllowed, ReserveNodesRequest
from gpupack_operator.nodes_limits import NodesLimits, NodesRequestLimiter

LIMITS = NodesLimits(
    requests=3, gpus=40, namespace_requests=2, namespace_gpus=24, interval_seconds=0
)


class Tenants:
    """Jobs of namespaces, and the limits that apply to them."""

    def __init__(self, build, limits=LIMITS):
        self.build, self.woken = build, []
        self.limiter = NodesRequestLimiter(limits, self.woken.append)
        self.version = 10

    def job(self, name, namespace="team", *, state="", gpus=8, since=0, lacks=True):
        fresh = self.build.gpujob(gpus=gpus)
        self.version += 1
        meta = structs.replace(
            fresh.metadata,
            name=name,
            namespace=namespace,
            uid=f"uid-of-{name}",
            resource_version=str(self.version),
        )
        stamp = self.build.stamp(since)
        lacking = stamp if lacks else None
        request = NodesRequest(lacks_gpus_since=lacking, state=state, since=stamp, number=1)
        return structs.replace(fresh, metadata=meta, status=GpuJobStatus(nodes_request=request))

    def ask(self, name, namespace="team", *, gpus=8, position=0, quota=None, now=0):
        """Return why the job may not request nodes; empty: it may."""
        request = ReserveNodesRequest(gpus, position, quota, is_fresh=True)
        answer = self.limiter.reserve(
            self.job(name, namespace, gpus=gpus), request, self.build.at(now)
        )
        return "" if isinstance(answer, NodesRequestAllowed) else answer.message or "not the first"

    def asks(self, name, namespace="team", *, gpus=8, state="Requested", now=0):
        """Request nodes for a job and record the request in its status."""
        assert self.ask(name, namespace, gpus=gpus, now=now) == ""
        job = self.job(name, namespace, state=state, gpus=gpus, since=now)
        self.limiter.settle(job, self.build.at(now))
        return job


@pytest.fixture
def tenants(build):
    return Tenants(build)


def test_open_requests_are_limited_for_each_namespace(tenants):
    tenants.asks("a")
    tenants.asks("b")
    assert "the namespace has reached its limit" in tenants.ask("c")
    assert tenants.ask("d", "other") == ""


def test_open_requests_are_limited_in_the_cluster(tenants):
    for namespace in ("one", "two", "three"):
        tenants.asks(f"of-{namespace}", namespace)
    assert "the cluster has reached its limit" in tenants.ask("of-four", "four")


def test_requested_gpus_are_limited_by_namespace_and_in_the_cluster(tenants):
    tenants.asks("a", gpus=20)
    assert "the namespace has reached" in tenants.ask("b", gpus=5)
    tenants.asks("c", "other", gpus=20)
    assert "the cluster has reached" in tenants.ask("d", "third", gpus=1)


def test_a_job_larger_than_every_limit_is_refused_with_a_message(tenants):
    assert tenants.ask("vast", gpus=25).startswith("no nodes are requested: 25 GPUs exceed")


def test_two_concurrent_passes_do_not_reserve_the_same_capacity(tenants):
    assert tenants.ask("a", gpus=20) == ""
    assert "the namespace has reached" in tenants.ask("b", gpus=20)


def test_an_unused_reservation_of_a_pass_is_released(tenants):
    tenants.ask("a", gpus=20)
    tenants.limiter.settle(tenants.job("a", lacks=False), tenants.build.at(0))
    assert tenants.ask("b", gpus=20) == ""


def test_withdrawn_requests_and_deleted_jobs_release_their_capacity(tenants):
    tenants.asks("a", gpus=12)
    last = tenants.asks("b", gpus=12)
    tenants.limiter.record(tenants.job("a", state="Withdrawn"), gone=False)
    assert tenants.ask("c", gpus=12) == ""
    tenants.limiter.settle(tenants.job("c", lacks=False), tenants.build.at(0))
    tenants.limiter.record(last, gone=True)
    assert tenants.ask("d", gpus=24) == ""


def test_an_older_event_does_not_release_capacity(tenants):
    older = tenants.job("a")
    tenants.asks("a", gpus=24)
    tenants.limiter.record(older, gone=False)
    assert "the namespace has reached" in tenants.ask("b")


def test_a_restarted_operator_counts_open_requests_from_statuses(tenants):
    tenants.limiter.record(tenants.job("a", state="Provisioned", gpus=20), gone=False)
    assert "the namespace has reached" in tenants.ask("b", gpus=5)


def test_open_requests_count_against_the_quota(tenants):
    tenants.asks("a")
    assert "the quota does not allow it" in tenants.ask("b", quota=15)
    assert tenants.ask("b", quota=16) == ""


def test_a_namespace_pauses_between_requests_even_if_the_first_job_is_deleted(build):
    tenants = Tenants(build, NodesLimits(interval_seconds=60))
    job = tenants.asks("a", state="Creating", now=10)
    tenants.limiter.record(job, gone=True)
    assert "another job of the namespace a moment ago" in tenants.ask("b", now=69)
    assert tenants.ask("b", now=70) == ""


def test_the_first_job_in_the_queue_is_woken_to_request_first(tenants):
    for name in ("full-1", "full-2"):
        tenants.asks(name)
    tenants.ask("early", position=3)
    tenants.ask("late", position=9)
    tenants.limiter.record(tenants.job("full-1", state="Withdrawn"), gone=False)
    assert tenants.ask("late", position=9) == "not the first"
    assert [key.name for key in tenants.woken] == ["early"]
    assert tenants.ask("early", position=3) == ""


def test_a_job_without_recent_passes_does_not_block_others(tenants):
    tenants.asks("full-1")
    tenants.asks("full-2")
    tenants.ask("early", position=3)
    tenants.limiter.record(tenants.job("full-1", state="Withdrawn"), gone=False)
    assert tenants.ask("late", position=9, now=121) == ""
