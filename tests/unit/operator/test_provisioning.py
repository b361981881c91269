# SPDX-License-Identifier: Apache-2.0
"""A job that lacks only free GPUs, step by step as the reconciler decides."""

import dataclasses

import pytest
from msgspec import structs

from gpupack_crds.plan import GpuShortage
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import CreateChildren, Plan, PlanPending, RequestPlan
from gpupack_operator.decision.nodes import (
    CreateNodesRequest,
    DeleteNodesRequest,
    NodesRequestAllowed,
    NodesRequestCreated,
    NodesRequestDeferred,
    NodesRequestDeleted,
    NodesRequestRefused,
    ObservedRequest,
    Provisioning,
    ReserveNodesRequest,
)
from gpupack_operator.decision.notices import notices

ON = Provisioning(class_name="atomic", after_seconds=30, retry_after_seconds=60)
NO_ROOM = PlanPending(
    "TooFewFreeGpus", "no room", position=2, gpu_shortage=GpuShortage(quota_gpus=16)
)
NO_QUOTA = PlanPending("BorrowingLimitExceeded", "the quota allows no more")


class Life:
    """One GPUJob whose status is written after each decision."""

    def __init__(self, build, *, settings=ON, **spec):
        self.build, self.settings = build, settings
        self.job = build.gpujob(**{"workers": 2, "gpus": 8} | spec)

    def look(self, now, answer=None, **seen):
        """Decide once at this second; the last answer of the queue stays valid."""
        seen = {"provisioning": self.settings, "next_request_at": self.build.at(9999)} | seen
        decision = decide(self.build.see(self.job, now=now, answer=answer, **seen))
        self.job = self.build.after(self.job, decision)
        return decision

    def ask(self, now):
        """Request nodes."""
        for answer in (NO_ROOM, NodesRequestAllowed(is_fresh=True), NodesRequestCreated()):
            self.look(now, answer)
        assert self.request.state == "Requested"
        return self

    def lack(self, now=0):
        self.look(now, NO_ROOM)
        return self

    def edit(self, **spec):
        meta = structs.replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        self.job = structs.replace(
            self.job, metadata=meta, spec=structs.replace(self.job.spec, **spec)
        )

    @property
    def request(self):
        return self.job.status.nodes_request

    @property
    def condition(self):
        found = [each for each in self.job.status.conditions if each.type == "NodesRequested"]
        return found[0] if found else None


@pytest.fixture
def life(build):
    return Life(build).lack()


@pytest.fixture
def requested(life):
    return life.ask(30)


def test_no_nodes_are_requested_before_the_delay_is_over(life):
    decision = life.look(29, NO_ROOM)
    assert decision.actions == ()
    assert decision.again_at == life.build.at(30)
    assert life.condition is None


def test_limits_are_checked_before_the_next_plan_request(life):
    assert life.look(30).actions == (ReserveNodesRequest(16, 0),)
    assert life.look(30, NodesRequestAllowed(is_fresh=False)).actions == (RequestPlan(1),)


def test_nodes_are_requested_after_a_current_answer_of_the_queue(life):
    assert life.look(30, NO_ROOM).actions == (ReserveNodesRequest(16, 2, 16, is_fresh=True),)
    decision = life.look(30, NodesRequestAllowed(is_fresh=True))
    assert decision.actions == (CreateNodesRequest(1),)
    assert (life.request.state, life.request.number, life.request.objects) == ("Creating", 1, True)


def test_the_condition_and_the_message_name_the_request(requested):
    assert (requested.condition.status, requested.condition.reason) == (
        "True",
        "ProvisioningRequested",
    )
    assert (
        "ProvisioningRequest train-nodes-1 requests nodes for 16 GPUs"
        in requested.condition.message
    )
    assert requested.job.status.message.startswith("no room; ProvisioningRequest")
    assert (requested.job.status.phase, requested.job.status.reason) == (
        "Pending",
        "TooFewFreeGpus",
    )


@pytest.mark.parametrize(
    "answer",
    [
        NO_QUOTA,
        PlanPending("Reserved", "blocked by the reservation of another"),
        dataclasses.replace(NO_ROOM, gpu_shortage=GpuShortage(starts_in_seconds=300)),
    ],
    ids=["quota", "order", "starts soon"],
)
def test_no_nodes_are_requested_for_a_job_that_waits_for_something_else(build, answer):
    life = Life(build)
    life.look(0, answer)
    assert life.look(999, answer).actions == ()
    assert life.request is None


def test_the_delay_starts_again_after_another_reason_for_waiting(life):
    life.look(20, NO_QUOTA)
    life.look(25, NO_ROOM)
    assert life.look(54, NO_ROOM).again_at == life.build.at(55)


def test_no_nodes_are_requested_for_shares(build):
    life = Life(build, workers=1, share={"percent": 50, "memory": "1Gi"}, gpus=None)
    life.lack()
    assert life.look(99, NO_ROOM).actions == ()


def test_no_nodes_are_requested_if_provisioning_is_disabled(build):
    life = Life(build, settings=None).lack()
    assert life.look(99, NO_ROOM).actions == ()
    assert life.request is None


def test_a_restarted_operator_creates_the_request_with_the_same_number(life):
    life.look(30, NO_ROOM)
    life.look(30, NodesRequestAllowed(is_fresh=True))
    assert life.look(31, next_request_at=None).actions == (RequestPlan(1),)
    assert life.look(32).actions == (CreateNodesRequest(1),)
    assert life.look(32, NodesRequestCreated()).actions == ()
    assert (life.request.state, life.request.number) == ("Requested", 1)


def test_provisioned_nodes_are_reported_while_the_job_waits(requested):
    requested.look(35, nodes=ObservedRequest("Provisioned"))
    assert (requested.condition.status, requested.condition.reason) == ("True", "Provisioned")
    assert requested.look(36, nodes=ObservedRequest("Provisioned")).actions == ()


def test_the_request_is_deleted_when_the_pods_run_on_its_nodes(requested):
    requested.look(35, nodes=ObservedRequest("Provisioned"))
    plan = Plan(requested.build.placement("a", "b"), seconds=9)
    (create,) = requested.look(40, plan).actions
    assert isinstance(create, CreateChildren)
    assert requested.request.state == "Provisioned"
    job, pods = (
        requested.build.job(),
        [requested.build.pod(i, limits={"gpupack.dev/gpu": "8"}) for i in (0, 1)],
    )
    assert requested.look(50, jobs=[job], pods=pods).actions == (DeleteNodesRequest(1),)
    assert requested.job.status.phase == "Running"
    requested.look(50, NodesRequestDeleted(), jobs=[job], pods=pods)
    assert (requested.request.state, requested.request.objects) == ("Withdrawn", False)
    assert requested.condition.reason == "ProvisioningWithdrawn"


def test_a_job_placed_before_the_autoscaler_answers_withdraws_its_request(requested):
    requested.look(33, Plan(requested.build.placement("a", "b"), seconds=9))
    assert requested.request.state == "Withdrawn"
    job, pods = (
        requested.build.job(),
        [requested.build.pod(i, limits={"gpupack.dev/gpu": "8"}) for i in (0, 1)],
    )
    assert requested.look(34, jobs=[job], pods=pods).actions == (DeleteNodesRequest(1),)


def test_a_job_placed_when_the_nodes_are_provisioned_keeps_its_request(requested):
    plan = Plan(requested.build.placement("a", "b"), seconds=9)
    requested.look(40, plan, nodes=ObservedRequest("Provisioned"))
    assert requested.request.state == "Provisioned"


def test_a_suspended_job_withdraws_its_request(requested):
    requested.edit(suspend=True)
    assert requested.look(40).actions == (DeleteNodesRequest(1),)
    assert (requested.job.status.phase, requested.request.state) == ("Suspended", "Withdrawn")


def test_an_edited_job_withdraws_its_request_and_may_request_again_later(requested):
    requested.edit(workers=1)
    assert requested.look(40).actions == (DeleteNodesRequest(1),)
    requested.look(40, NodesRequestDeleted())
    requested.look(41, NO_ROOM)
    assert requested.look(99, NO_ROOM).again_at == requested.build.at(100)
    assert requested.look(100, NO_ROOM).actions == (ReserveNodesRequest(8, 2, 16, is_fresh=True),)
    requested.look(100, NodesRequestAllowed(is_fresh=True))
    assert requested.request.number == 2


def test_a_job_beyond_its_quota_withdraws_its_request(requested):
    assert requested.look(40, NO_QUOTA).actions == (DeleteNodesRequest(1),)


def test_a_job_behind_others_keeps_its_request(requested):
    requested.look(40, PlanPending("Reserved", "room is kept"))
    assert requested.request.state == "Requested"


def test_a_failed_request_is_reported_and_repeated_after_a_pause(requested):
    failed = ObservedRequest("Failed", "Failed (QuotaExceeded): no more machines")
    assert requested.look(40, nodes=failed).actions == (DeleteNodesRequest(1),)
    assert (requested.condition.status, requested.condition.reason) == (
        "False",
        "ProvisioningFailed",
    )
    assert "QuotaExceeded): no more machines; requested again at" in requested.job.status.message
    assert requested.look(40, NodesRequestDeleted()).again_at == requested.build.at(100)
    assert requested.look(100, NO_ROOM).actions == (ReserveNodesRequest(16, 2, 16, is_fresh=True),)


def test_requests_stop_after_the_maximum_number_of_failures(requested):
    for number, now in ((1, 40), (2, 200), (3, 500)):
        if number > 1:
            requested.ask(now - 1)
        requested.look(now, nodes=ObservedRequest("Failed", "no"))
        requested.look(now, NodesRequestDeleted())
        assert requested.request.failures == number
    assert requested.condition.reason == "ProvisioningStopped"
    assert requested.look(99999, NO_ROOM).actions == ()
    requested.edit(workers=3)
    requested.look(99999, NO_ROOM)
    assert requested.look(100100, NO_ROOM).actions != ()


def test_the_pause_after_two_failures_is_twice_as_long():
    assert [ON.backoff_after(n) for n in (1, 2, 3, 99)] == [60, 120, 240, 1800]


@pytest.mark.parametrize(
    ("state", "now", "said"),
    [
        ("Open", 30 + 900, "no autoscaler answered ProvisioningRequest train-nodes-1 within 900 s"),
        ("Gone", 40, "another client deleted ProvisioningRequest train-nodes-1"),
    ],
)
def test_a_request_without_an_answer_is_a_failure(requested, state, now, said):
    requested.look(now, nodes=ObservedRequest(state))
    assert (requested.request.state, requested.request.failures) == ("Failed", 1)
    assert said in requested.job.status.message


def test_provisioned_nodes_without_a_place_for_the_job_are_a_failure(requested):
    requested.look(35, nodes=ObservedRequest("Provisioned"))
    requested.look(634, nodes=ObservedRequest("Provisioned"))
    assert requested.request.state == "Provisioned"
    requested.look(635, nodes=ObservedRequest("Provisioned"))
    assert "gave the job no place within 600 s" in requested.job.status.message


def test_a_refused_request_is_reported_and_deleted(life):
    life.look(30, NO_ROOM)
    life.look(30, NodesRequestAllowed(is_fresh=True))
    decision = life.look(30, NodesRequestRefused("the cluster has no ProvisioningRequests"))
    assert decision.actions == (DeleteNodesRequest(1),)
    assert "the cluster has no ProvisioningRequests; requested again" in life.job.status.message


def test_a_limit_is_reported_once_and_checked_again(life):
    life.look(30, NO_ROOM)
    decision = life.look(30, NodesRequestDeferred("as many as may be at once", 60))
    assert decision.again_at == life.build.at(90)
    assert (life.condition.status, life.condition.reason) == ("False", "ProvisioningDeferred")
    life.look(90, NO_ROOM)
    life.look(90, NodesRequestDeferred("another bound", 60))
    assert life.condition.message == "as many as may be at once"
    life.look(150, NO_ROOM)
    life.look(150, NodesRequestAllowed(is_fresh=True))
    assert life.request.state == "Creating"


def test_an_open_request_is_deleted_when_provisioning_is_disabled(requested):
    requested.settings = None
    assert requested.look(40).actions == (DeleteNodesRequest(1),)


def test_a_job_that_is_being_deleted_is_left_to_garbage_collection(requested):
    meta = structs.replace(requested.job.metadata, deletion_timestamp=requested.build.at(40))
    requested.job = structs.replace(requested.job, metadata=meta)
    assert requested.look(41).actions == ()


def test_each_step_of_a_request_causes_an_event(life):
    events = []
    steps = [NO_ROOM, NodesRequestAllowed(is_fresh=True), NodesRequestCreated(), None, None]
    for number, answer in enumerate(steps):
        before = life.job
        failed = ObservedRequest("Failed", "no machines") if number == 4 else None
        life.look(30 + number, answer, nodes=failed)
        events += [(each.type, each.reason) for each in notices(before, life.job.status)]
    assert events == [("Normal", "ProvisioningRequested"), ("Warning", "ProvisioningFailed")]


def test_a_request_whose_name_stays_in_use_becomes_a_failure(life):
    life.look(30, NO_ROOM)
    life.look(30, NodesRequestAllowed(is_fresh=True))
    assert life.look(929).actions == (CreateNodesRequest(1),)
    assert life.look(930).actions == (DeleteNodesRequest(1),)
    assert "could not be created within 900 s" in life.job.status.message


def test_a_placed_job_forgets_failed_requests(requested):
    requested.look(40, nodes=ObservedRequest("Failed", "no machines"))
    requested.look(40, NodesRequestDeleted())
    requested.look(50, Plan(requested.build.placement("a", "b"), seconds=9))
    assert (requested.request.failures, requested.condition) == (0, None)
    assert requested.request.number == 1
