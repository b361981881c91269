# SPDX-License-Identifier: Apache-2.0
"""A job that waits for nothing but room, step by step, as the reconciler would take it."""

import dataclasses

import pytest
from msgspec import structs

from gpupack_crds.plan import GpuShortage
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import AskPlan, CreateChildren, Planned, Waits
from gpupack_operator.decision.nodes import (
    AskNodes,
    MayAskNodes,
    MayNotAskNodes,
    NodesAsked,
    NodesNotAsked,
    NodesReturned,
    Provisioning,
    ReserveNodes,
    ReturnNodes,
    SeenRequest,
)
from gpupack_operator.decision.notices import notices

ON = Provisioning(class_name="atomic", after_seconds=30, again_seconds=60)
NO_ROOM = Waits("TooFewFreeGpus", "no room", position=2, gpu_shortage=GpuShortage(quota_gpus=16))
NO_QUOTA = Waits("BorrowingLimitExceeded", "the quota allows no more")


class Life:
    """One GPUJob whose status is written after each decision."""

    def __init__(self, build, *, settings=ON, **spec):
        self.build, self.settings = build, settings
        self.job = build.gpujob(**{"workers": 2, "gpus": 8} | spec)

    def look(self, now, answer=None, **seen):
        """One decision at this second; the queue knows the job for long."""
        seen = {"provisioning": self.settings, "asked_until": self.build.at(9999)} | seen
        decision = decide(self.build.see(self.job, now=now, answer=answer, **seen))
        self.job = self.build.after(self.job, decision)
        return decision

    def ask(self, now):
        """Have it asked for nodes."""
        for answer in (NO_ROOM, MayAskNodes(is_fresh=True), NodesAsked()):
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
def asked(life):
    return life.ask(30)


def test_a_job_that_lacks_room_is_not_asked_for_before_its_time(life):
    decision = life.look(29, NO_ROOM)
    assert decision.actions == ()
    assert decision.again_at == life.build.at(30)
    assert life.condition is None


def test_when_it_is_time_bounds_are_looked_at_before_the_queue_is_asked_anew(life):
    assert life.look(30).actions == (ReserveNodes(16, 0),)
    assert life.look(30, MayAskNodes(is_fresh=False)).actions == (AskPlan(1),)


def test_the_queue_s_fresh_word_comes_before_the_request_and_the_status_before_both(life):
    assert life.look(30, NO_ROOM).actions == (ReserveNodes(16, 2, 16, is_fresh=True),)
    decision = life.look(30, MayAskNodes(is_fresh=True))
    assert decision.actions == (AskNodes(1),)
    assert (life.request.state, life.request.number, life.request.objects) == ("Creating", 1, True)


def test_what_it_waits_for_stands_in_the_condition_and_in_the_message(asked):
    assert (asked.condition.status, asked.condition.reason) == ("True", "ProvisioningRequested")
    assert "ProvisioningRequest train-nodes-1 asks for nodes for 16 GPUs" in asked.condition.message
    assert asked.job.status.message.startswith("no room; ProvisioningRequest")
    assert (asked.job.status.phase, asked.job.status.reason) == ("Pending", "TooFewFreeGpus")


@pytest.mark.parametrize(
    "answer",
    [
        NO_QUOTA,
        Waits("Reserved", "blocked by the reservation of another"),
        dataclasses.replace(NO_ROOM, gpu_shortage=GpuShortage(starts_in_seconds=300)),
    ],
    ids=["quota", "order", "starts soon"],
)
def test_who_waits_for_something_else_is_not_asked_for(build, answer):
    life = Life(build)
    life.look(0, answer)
    assert life.look(999, answer).actions == ()
    assert life.request is None


def test_time_begins_anew_where_the_job_waited_for_something_else_meanwhile(life):
    life.look(20, NO_QUOTA)
    life.look(25, NO_ROOM)
    assert life.look(54, NO_ROOM).again_at == life.build.at(55)


def test_shares_are_not_asked_for_since_no_autoscaler_counts_them(build):
    life = Life(build, workers=1, share={"percent": 50, "memory": "1Gi"}, gpus=None)
    life.lack()
    assert life.look(99, NO_ROOM).actions == ()


def test_nothing_is_asked_for_where_it_is_off(build):
    life = Life(build, settings=None).lack()
    assert life.look(99, NO_ROOM).actions == ()
    assert life.request is None


def test_an_operator_that_starts_anew_while_asking_creates_under_the_same_number(life):
    life.look(30, NO_ROOM)
    life.look(30, MayAskNodes(is_fresh=True))
    assert life.look(31, asked_until=None).actions == (AskPlan(1),)
    assert life.look(32).actions == (AskNodes(1),)
    assert life.look(32, NodesAsked()).actions == ()
    assert (life.request.state, life.request.number) == ("Requested", 1)


def test_the_yes_of_the_autoscaler_is_told_and_the_job_waits_for_its_turn(asked):
    asked.look(35, nodes=SeenRequest("Provisioned"))
    assert (asked.condition.status, asked.condition.reason) == ("True", "Provisioned")
    assert asked.look(36, nodes=SeenRequest("Provisioned")).actions == ()


def test_the_request_stays_until_the_pods_run_on_its_nodes_and_is_deleted_then(asked):
    asked.look(35, nodes=SeenRequest("Provisioned"))
    plan = Planned(asked.build.placement("a", "b"), seconds=9)
    (create,) = asked.look(40, plan).actions
    assert isinstance(create, CreateChildren)
    assert asked.request.state == "Provisioned"
    job, pods = (
        asked.build.job(),
        [asked.build.pod(i, limits={"gpupack.dev/gpu": "8"}) for i in (0, 1)],
    )
    assert asked.look(50, jobs=[job], pods=pods).actions == (ReturnNodes(1),)
    assert asked.job.status.phase == "Running"
    asked.look(50, NodesReturned(), jobs=[job], pods=pods)
    assert (asked.request.state, asked.request.objects) == ("Withdrawn", False)
    assert asked.condition.reason == "ProvisioningWithdrawn"


def test_a_job_that_finds_places_before_the_autoscaler_answers_gives_its_request_back(asked):
    asked.look(33, Planned(asked.build.placement("a", "b"), seconds=9))
    assert asked.request.state == "Withdrawn"
    job, pods = (
        asked.build.job(),
        [asked.build.pod(i, limits={"gpupack.dev/gpu": "8"}) for i in (0, 1)],
    )
    assert asked.look(34, jobs=[job], pods=pods).actions == (ReturnNodes(1),)


def test_a_job_that_is_placed_as_the_autoscaler_says_yes_keeps_its_request_until_it_runs(asked):
    plan = Planned(asked.build.placement("a", "b"), seconds=9)
    asked.look(40, plan, nodes=SeenRequest("Provisioned"))
    assert asked.request.state == "Provisioned"


def test_a_suspended_job_gives_its_request_back(asked):
    asked.edit(suspend=True)
    assert asked.look(40).actions == (ReturnNodes(1),)
    assert (asked.job.status.phase, asked.request.state) == ("Suspended", "Withdrawn")


def test_a_job_that_was_changed_gives_its_request_back_and_may_ask_again_later(asked):
    asked.edit(workers=1)
    assert asked.look(40).actions == (ReturnNodes(1),)
    asked.look(40, NodesReturned())
    asked.look(41, NO_ROOM)
    assert asked.look(99, NO_ROOM).again_at == asked.build.at(100)
    assert asked.look(100, NO_ROOM).actions == (ReserveNodes(8, 2, 16, is_fresh=True),)
    asked.look(100, MayAskNodes(is_fresh=True))
    assert asked.request.number == 2


def test_a_job_that_its_quota_does_not_allow_any_more_gives_its_request_back(asked):
    assert asked.look(40, NO_QUOTA).actions == (ReturnNodes(1),)


def test_a_job_that_has_others_before_it_for_a_while_keeps_its_request(asked):
    asked.look(40, Waits("Reserved", "room is kept"))
    assert asked.request.state == "Requested"


def test_a_failed_request_says_why_and_is_followed_by_another_after_a_pause(asked):
    failed = SeenRequest("Failed", "Failed (QuotaExceeded): no more machines")
    assert asked.look(40, nodes=failed).actions == (ReturnNodes(1),)
    assert (asked.condition.status, asked.condition.reason) == ("False", "ProvisioningFailed")
    assert "QuotaExceeded): no more machines; asked again not before" in asked.job.status.message
    assert asked.look(40, NodesReturned()).again_at == asked.build.at(100)
    assert asked.look(100, NO_ROOM).actions == (ReserveNodes(16, 2, 16, is_fresh=True),)


def test_pauses_double_and_end_with_the_last_try(asked):
    for number, now in ((1, 40), (2, 200), (3, 500)):
        if number > 1:
            asked.ask(now - 1)
        asked.look(now, nodes=SeenRequest("Failed", "no"))
        asked.look(now, NodesReturned())
        assert asked.request.failures == number
    assert asked.condition.reason == "ProvisioningStopped"
    assert asked.look(99999, NO_ROOM).actions == ()
    asked.edit(workers=3)
    asked.look(99999, NO_ROOM)
    assert asked.look(100100, NO_ROOM).actions != ()


def test_the_pause_after_two_failures_is_twice_as_long():
    assert [ON.backoff_after(n) for n in (1, 2, 3, 99)] == [60, 120, 240, 1800]


@pytest.mark.parametrize(
    ("state", "now", "said"),
    [
        ("Open", 30 + 900, "no autoscaler answered ProvisioningRequest train-nodes-1 within 900 s"),
        ("Gone", 40, "somebody deleted ProvisioningRequest train-nodes-1"),
    ],
)
def test_a_request_without_an_answer_is_a_failure(asked, state, now, said):
    asked.look(now, nodes=SeenRequest(state))
    assert (asked.request.state, asked.request.failures) == ("Failed", 1)
    assert said in asked.job.status.message


def test_nodes_that_give_the_job_no_place_are_a_failure(asked):
    asked.look(35, nodes=SeenRequest("Provisioned"))
    asked.look(634, nodes=SeenRequest("Provisioned"))
    assert asked.request.state == "Provisioned"
    asked.look(635, nodes=SeenRequest("Provisioned"))
    assert "gave the job no place within 600 s" in asked.job.status.message


def test_what_the_api_server_refuses_is_told_and_cleared_up(life):
    life.look(30, NO_ROOM)
    life.look(30, MayAskNodes(is_fresh=True))
    decision = life.look(30, NodesNotAsked("the cluster has no ProvisioningRequests"))
    assert decision.actions == (ReturnNodes(1),)
    assert "the cluster has no ProvisioningRequests; asked again" in life.job.status.message


def test_a_bound_is_told_once_and_looked_at_again(life):
    life.look(30, NO_ROOM)
    decision = life.look(30, MayNotAskNodes("as many as may be at once", 60))
    assert decision.again_at == life.build.at(90)
    assert (life.condition.status, life.condition.reason) == ("False", "ProvisioningDeferred")
    life.look(90, NO_ROOM)
    life.look(90, MayNotAskNodes("another bound", 60))
    assert life.condition.message == "as many as may be at once"
    life.look(150, NO_ROOM)
    life.look(150, MayAskNodes(is_fresh=True))
    assert life.request.state == "Creating"


def test_what_was_asked_for_is_given_back_when_it_is_turned_off(asked):
    asked.settings = None
    assert asked.look(40).actions == (ReturnNodes(1),)


def test_a_job_that_is_being_deleted_is_left_to_garbage_collection(asked):
    meta = structs.replace(asked.job.metadata, deletion_timestamp=asked.build.at(40))
    asked.job = structs.replace(asked.job, metadata=meta)
    assert asked.look(41).actions == ()


def test_what_becomes_of_asking_is_an_event_each_and_a_failure_a_warning(life):
    told = []
    steps = [NO_ROOM, MayAskNodes(is_fresh=True), NodesAsked(), None, None]
    for number, answer in enumerate(steps):
        before = life.job
        failed = SeenRequest("Failed", "no machines") if number == 4 else None
        life.look(30 + number, answer, nodes=failed)
        told += [(each.type, each.reason) for each in notices(before, life.job.status)]
    assert told == [("Normal", "ProvisioningRequested"), ("Warning", "ProvisioningFailed")]


def test_a_request_that_something_old_keeps_from_being_created_is_a_failure_in_the_end(life):
    life.look(30, NO_ROOM)
    life.look(30, MayAskNodes(is_fresh=True))
    assert life.look(929).actions == (AskNodes(1),)
    assert life.look(930).actions == (ReturnNodes(1),)
    assert "could not be created within 900 s" in life.job.status.message


def test_a_job_that_runs_has_forgotten_what_failed_before(asked):
    asked.look(40, nodes=SeenRequest("Failed", "no machines"))
    asked.look(40, NodesReturned())
    asked.look(50, Planned(asked.build.placement("a", "b"), seconds=9))
    assert (asked.request.failures, asked.condition) == (0, None)
    assert asked.request.number == 1
