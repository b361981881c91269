# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, NodesRequest
from gpupack_operator.decision.nodes import MayAskNodes, ReserveNodes
from gpupack_operator.nodes_bounds import Bounds, NodesBounds

BOUNDS = Bounds(requests=3, gpus=40, namespace_requests=2, namespace_gpus=24, between_seconds=0)


class Tenants:
    """Jobs of namespaces, and the bounds that hold for them."""

    def __init__(self, build, bounds=BOUNDS):
        self.build, self.woken = build, []
        self.bounds = NodesBounds(bounds, self.woken.append)
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
        """Empty: it may ask; else why not."""
        asked = ReserveNodes(gpus, position, quota, is_fresh=True)
        answer = self.bounds.reserve(
            self.job(name, namespace, gpus=gpus), asked, self.build.at(now)
        )
        return "" if isinstance(answer, MayAskNodes) else answer.message or "not the first"

    def asks(self, name, namespace="team", *, gpus=8, state="Requested", now=0):
        """It asked, and its status says so."""
        assert self.ask(name, namespace, gpus=gpus, now=now) == ""
        job = self.job(name, namespace, state=state, gpus=gpus, since=now)
        self.bounds.settle(job, self.build.at(now))
        return job


@pytest.fixture
def tenants(build):
    return Tenants(build)


def test_a_namespace_has_only_so_many_requests_open_and_others_may_ask_still(tenants):
    tenants.asks("a")
    tenants.asks("b")
    assert "of the namespace as may be at once" in tenants.ask("c")
    assert tenants.ask("d", "other") == ""


def test_the_cluster_has_only_so_many_requests_open(tenants):
    for namespace in ("one", "two", "three"):
        tenants.asks(f"of-{namespace}", namespace)
    assert "of the cluster as may be at once" in tenants.ask("of-four", "four")


def test_gpus_are_bounded_by_namespace_and_in_the_cluster(tenants):
    tenants.asks("a", gpus=20)
    assert "of the namespace" in tenants.ask("b", gpus=5)
    tenants.asks("c", "other", gpus=20)
    assert "of the cluster" in tenants.ask("d", "third", gpus=1)


def test_a_job_that_is_larger_than_any_bound_is_told_so(tenants):
    assert tenants.ask("vast", gpus=25).startswith("no nodes are asked for: 25 GPUs are more than")


def test_two_passes_that_run_side_by_side_do_not_take_the_same_room(tenants):
    assert tenants.ask("a", gpus=20) == ""
    assert "of the namespace" in tenants.ask("b", gpus=20)


def test_what_a_pass_reserved_and_did_not_ask_for_is_free_again(tenants):
    tenants.ask("a", gpus=20)
    tenants.bounds.settle(tenants.job("a", lacks=False), tenants.build.at(0))
    assert tenants.ask("b", gpus=20) == ""


def test_what_is_given_back_or_gone_is_free_again(tenants):
    tenants.asks("a", gpus=12)
    last = tenants.asks("b", gpus=12)
    tenants.bounds.saw(tenants.job("a", state="Withdrawn"), gone=False)
    assert tenants.ask("c", gpus=12) == ""
    tenants.bounds.settle(tenants.job("c", lacks=False), tenants.build.at(0))
    tenants.bounds.saw(last, gone=True)
    assert tenants.ask("d", gpus=24) == ""


def test_an_older_event_does_not_make_room(tenants):
    older = tenants.job("a")
    tenants.asks("a", gpus=24)
    tenants.bounds.saw(older, gone=False)
    assert "of the namespace" in tenants.ask("b")


def test_a_new_operator_counts_what_is_open_by_the_statuses(tenants):
    tenants.bounds.saw(tenants.job("a", state="Provisioned", gpus=20), gone=False)
    assert "of the namespace" in tenants.ask("b", gpus=5)


def test_the_quota_is_left_enough_for_all_that_was_asked_for(tenants):
    tenants.asks("a")
    assert "the quota does not allow it, beside" in tenants.ask("b", quota=15)
    assert tenants.ask("b", quota=16) == ""


def test_a_namespace_pauses_between_two_requests_even_where_the_first_is_gone(build):
    tenants = Tenants(build, Bounds(between_seconds=60))
    job = tenants.asks("a", state="Creating", now=10)
    tenants.bounds.saw(job, gone=True)
    assert "another job of the namespace just now" in tenants.ask("b", now=69)
    assert tenants.ask("b", now=70) == ""


def test_the_first_in_the_queue_asks_first_and_is_woken_for_that(tenants):
    for name in ("full-1", "full-2"):
        tenants.asks(name)
    tenants.ask("early", position=3)
    tenants.ask("late", position=9)
    tenants.bounds.saw(tenants.job("full-1", state="Withdrawn"), gone=False)
    assert tenants.ask("late", position=9) == "not the first"
    assert [key.name for key in tenants.woken] == ["early"]
    assert tenants.ask("early", position=3) == ""


def test_one_who_was_not_heard_of_for_long_keeps_nobody_back(tenants):
    tenants.asks("full-1")
    tenants.asks("full-2")
    tenants.ask("early", position=3)
    tenants.bounds.saw(tenants.job("full-1", state="Withdrawn"), gone=False)
    assert tenants.ask("late", position=9, now=121) == ""
