# SPDX-License-Identifier: Apache-2.0
"""The jobs that count as running, independent of what pods claim."""

import datetime as dt

import msgspec
import pytest
from extender_builders import OBSERVED, World, gpu_node, job, node, pod, whole
from prometheus_client import CollectorRegistry

from gpupack_crds.plan import PlanResponse
from gpupack_extender.queueing.queue_metrics import QueueMetrics
from gpupack_extender.queueing.runner import QueueRunner
from gpupack_placement import LedgerConflict
from gpupack_scheduler.queueing import admissions


def forged(name, *, namespace="team", attempt=1, uid=None, on="nowhere"):
    """A pod with GPUs of another plugin, on a node that its author named."""
    worker = ("train", attempt, 0, uid)
    return pod(name, asking={OBSERVED: "1"}, on=on, worker=worker, namespace=namespace)


def counted(world):
    running = world.owner.queue.state.running
    return sorted((each.job.tenant, each.job.name) for each in running)


def test_a_pod_that_says_to_be_the_next_attempt_of_a_waiting_job_ends_nothing(world):
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    world.asks("train")
    world.ledger.pods.upsert(forged("liar"))
    world.decide()
    world.asks("train")
    world.ends("holder")
    world.decide()
    assert world.called() == ["train"]
    assert isinstance(world.asks("train"), PlanResponse)
    assert counted(world) == [("team", "pod liar"), ("team", "train")]


@pytest.mark.parametrize("namespace", ["team", "evil"])
def test_a_pod_that_names_a_running_job_removes_no_usage(world, namespace):
    world.asks("train", gpus=4)
    world.written("train")
    world.decide()
    world.ledger.pods.upsert(forged("liar", namespace=namespace))
    world.decide()
    running = {each.job.name: each for each in world.owner.queue.state.running}
    assert sum(len(place.devices) for place in running["train"].placements) >= 4
    used = world.owner.queue.state.quota.usage
    tenant = world.owner.queue.state.quota.tree.tenant("team")
    assert used.used_by(tenant)[""] >= 4000


def test_a_pod_of_another_namespace_removes_no_job_from_the_queue(world):
    world.asks("holder", workers=2, gpus=4)
    world.asks("train")
    world.ledger.pods.upsert(forged("liar", namespace="evil", uid="uid-train"))
    world.decide()
    assert [each.name for each in world.owner.queue.jobs()] == ["train"]


def relabelled(number, *, worker, namespace="team"):
    """A pod of its own that has two GPUs; later its author says that it is a worker."""
    devices = whole("b", 2 * number, 2 * number + 1)
    return pod(f"p{number}", gpus=2, on="b", devices=devices, worker=worker, namespace=namespace)


def gpus_counted(world, tenant="team"):
    quota = world.owner.queue.state.quota
    return quota.usage.used_by(quota.tree.tenant(tenant)).get("", 0) // 1000


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_labeled_as_a_worker_of_a_running_job_counts_in_addition_to_it(world, index):
    """Of the one that it has, or of one that it has not."""
    world.asks("train", gpus=4)
    world.written("train")
    world.ledger.pods.upsert(relabelled(0, worker=None))
    world.decide()
    assert gpus_counted(world) == 6
    world.ledger.pods.upsert(relabelled(0, worker=("train", 1, index, "uid-train")))
    world.decide()
    assert (gpus_counted(world), counted(world)) == (6, [("team", "pod p0"), ("team", "train")])
    world.owner.restart()
    world.decide()
    assert (gpus_counted(world), counted(world)) == (6, [("team", "pod p0"), ("team", "train")])
    world.ends("train")
    world.decide()
    assert (gpus_counted(world), counted(world)) == (2, [("team", "pod p0")])
    world.ledger.pods.remove(relabelled(0, worker=("train", 1, index, "uid-train")))
    world.decide()
    assert (gpus_counted(world), counted(world)) == (0, [])


def test_a_pod_that_is_relabeled_to_another_attempt_always_counts(world):
    world.asks("train", gpus=4)
    world.written("train")
    for number in (1, 2, 1, 3):
        world.ledger.pods.upsert(relabelled(0, worker=("train", number, 0, "uid-train")))
        world.decide()
        assert gpus_counted(world) == 6
    world.ledger.pods.upsert(relabelled(0, worker=None))
    world.decide()
    assert gpus_counted(world) == 6


def test_a_pod_labeled_with_a_job_of_another_namespace_counts_for_its_own(world):
    world.asks("train", gpus=4)
    world.written("train")
    worker = ("train", 1, 0, "uid-train")
    world.ledger.pods.upsert(relabelled(0, worker=worker, namespace="evil"))
    world.decide()
    assert (gpus_counted(world), gpus_counted(world, "evil")) == (4, 2)
    world.ends("train")
    world.decide()
    assert (gpus_counted(world), gpus_counted(world, "evil")) == (0, 2)


def test_a_worker_s_pod_counts_until_it_is_gone_although_its_job_has_ended(world):
    world.asks("train", gpus=4)
    world.written("train")
    bound = world.bind(pod("w", gpus=4, worker=("train", 1, 0, "uid-train")), "a")
    world.decide()
    assert (gpus_counted(world), counted(world)) == (4, [("team", "train")])
    world.ends("train")
    world.decide()
    assert (gpus_counted(world), counted(world)) == (4, [("team", "train")])
    world.ledger.pods.remove(bound)
    world.decide()
    assert counted(world) == []


def test_a_forged_worker_that_is_gone_counts_no_more(world):
    world.ledger.pods.upsert(forged("liar"))
    world.decide()
    world.ledger.pods.remove(forged("liar"))
    world.decide()
    assert counted(world) == []


def test_jobs_on_one_observed_node_are_counted_with_separate_gpus(world):
    world = World()
    world.add_observed_node("o", gpus=4)
    for number in range(4):
        world.asks(f"j{number}", resourceName=OBSERVED)
    running = world.owner.queue.state.running
    held = [grant.uuid for each in running for place in each.placements for grant in place.devices]
    assert (len(held), len(set(held))) == (4, 4)


def test_pods_that_are_listed_before_their_node_count_once_it_is_known():
    """As at a start."""
    world = World()
    for number in range(3):
        world.ledger.pods.upsert(pod(f"p{number}", asking={OBSERVED: "1"}, on="o"))
    world.decide()
    world.add_observed_node("o", gpus=4)
    world.decide()
    running = world.owner.queue.state.running
    held = {grant.uuid for each in running for place in each.placements for grant in place.devices}
    assert len(held) == 3


def test_pods_that_another_scheduler_bound_count_by_their_device_tokens(world):
    world.ledger.pods.upsert(pod("p", gpus=2, on="a"))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.charge == {"": 2000}


def test_a_pod_that_is_deleted_by_force_counts_until_its_processes_are_gone(world):
    """Else its namespace could have as many GPUs as it likes, one pod after the other."""
    bound = pod("p", gpus=4, on="a", devices=whole("a", 0, 1, 2, 3))
    world.ledger.pods.upsert(bound)
    world.decide()
    held = {"p": whole("a", 0, 1, 2, 3)}
    world.ledger.gpus.upsert(gpu_node("a", lingering=held))
    world.decide()
    assert counted(world) == [("team", "pod p")]
    world.ledger.pods.remove(bound)
    world.decide()
    assert counted(world) == [("team", "pod p")]
    (running,) = world.owner.queue.state.running
    assert running.charge == {"": 4000}
    world.ledger.gpus.upsert(gpu_node("a"))
    world.decide()
    assert counted(world) == []


def test_an_admitted_job_started_at_the_time_in_its_status(world):
    """The status has whole seconds, and is all that a read-only queue and the next leader have."""
    world.now = 1000.9
    world.asks("train", gpus=2, seconds_left=60.0)
    queue = world.owner.queue
    (let_in,) = queue.state.running
    placed = {"phase": "Admitted", "placed": [("a", [0, 1])], "activeDeadlineSeconds": 60}
    shown = world.with_times(job("train", attempt=1, **placed), startedAt="1970-01-01T00:16:41Z")
    world.ledger.jobs.upsert(shown)
    world.now, before = 1001.7, queue.state.disruptions
    world.decide()
    (running,) = queue.state.running
    assert (let_in.started, running.started, running.latest_end) == (
        1000.9,
        1001.0,
        let_in.latest_end,
    )
    assert queue.state.disruptions == before


def test_a_pod_began_when_its_kubelet_did(world):
    bound = pod("p", on="a", devices=whole("a", 0))
    world.ledger.pods.upsert(bound)
    world.decide()
    begun = dt.datetime.fromtimestamp(1003, dt.UTC)
    status = msgspec.structs.replace(bound.status, start_time=begun)
    world.ledger.pods.upsert(msgspec.structs.replace(bound, status=status))
    world.now += 5
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.started == 1003.0


def test_the_deadline_of_a_pod_counts_from_the_start_by_its_kubelet_and_may_change(world):
    bound = pod("p", on="a", devices=whole("a", 0))

    def shows(seconds, begun=None):
        spec = msgspec.structs.replace(bound.spec, active_deadline_seconds=seconds)
        start = None if begun is None else dt.datetime.fromtimestamp(begun, dt.UTC)
        status = msgspec.structs.replace(bound.status, start_time=start)
        world.ledger.pods.upsert(msgspec.structs.replace(bound, spec=spec, status=status))
        world.decide()
        (running,) = world.owner.queue.state.running
        return running.latest_end

    world.now = 1000
    assert shows(600) == 1600.0
    world.now = 1100
    assert shows(600, begun=1060) == 1660.0
    assert shows(300, begun=1060) == 1360.0


def test_a_job_that_lost_its_unrecorded_placement_is_notified(world):
    world.ledger.jobs.upsert(job("train"))
    world.asks("train")
    world.ledger.nodes.remove(node("a"))
    world.ledger.drop_plans("uid-train")
    world.decide()
    assert world.called() == ["train"]


def test_only_as_many_jobs_are_admitted_as_can_be_recorded(world, monkeypatch):
    monkeypatch.setattr(admissions, "MAX_UNWRITTEN", 3)
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    for number in range(6):
        world.asks(f"j{number}", submitted=number)
    world.ends("holder")
    for _ in range(5):
        world.owner.decide()
    assert world.called() == ["j0", "j1", "j2"]
    for number in range(3):
        world.written(f"j{number}")
    world.decide()
    assert world.called() == [f"j{number}" for number in range(6)]


class Ready:
    class leadership:  # noqa: N801 - an attribute of readiness
        held = True

    def missing_to_answer(self):
        return ""

    missing_to_decide = missing_to_answer


class Standby(Ready):
    class leadership:  # noqa: N801 - an attribute of readiness
        held = False


def test_a_standby_observes_the_queue_and_notifies_no_component(world):
    world.ledger.jobs.upsert(job("train"))
    world.asks("train", gpus=2)
    world.ledger.nodes.remove(node("a"))
    world.ledger.drop_plans("uid-train")
    metrics = QueueMetrics(CollectorRegistry())
    QueueRunner(world.owner, world.ledger, world.quotas, Standby(), metrics).step()
    assert (world.running(), world.called(), world.gates.opened) == ([], [], [])


def test_an_inconsistent_queue_restarts_and_ends_no_job(world, monkeypatch, caplog):
    world.asks("train", gpus=2)
    world.written("train")
    metrics = QueueMetrics(CollectorRegistry())
    runner = QueueRunner(world.owner, world.ledger, world.quotas, Ready(), metrics)
    runner.step()
    decide = world.owner.decide

    def contradicts():
        monkeypatch.setattr(world.owner, "decide", decide)
        raise LedgerConflict("for a test")

    monkeypatch.setattr(world.owner, "decide", contradicts)
    runner.step()
    assert "the queue restarts" in caplog.text
    runner.step()
    assert world.running() == ["train"]
