# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations: backfill before a window, preemption at its start, and its jobs."""

from dataclasses import replace

import pytest
from placement_builders import node
from queue_world import AT_ONCE, World, quota, window, with_rules

from gpupack_devices.errors import InvalidRequest
from gpupack_placement import Gang, Request
from gpupack_queue import (
    At,
    Job,
    JobId,
    PredictedStart,
    ReservationId,
    Tenant,
    Wait,
    WaitReason,
    WhatIf,
)


def lab(*, grace=0.0, gpus=4, nominal=4, windows=None, **kw):
    """One node, on which namespace lab reserves 4 GPUs from 100 to 200 s."""
    world = World(
        node("n1", gpus), quotas=[quota("lab", nominal), quota("web", 0)], grace=grace, **kw
    )
    world.reserve(*(windows or [window("lab/day", 4, 100, 200)]))
    return world


def of_day(**kw):
    return {"reservation": ReservationId("lab/day")} | kw


def test_before_the_window_a_job_that_ends_in_time_uses_its_gpus():
    world = lab().submit("short", 4, "web", duration=90, preemptible=False).decide()
    assert "short" in world.where


def test_before_the_window_a_job_that_may_not_be_preempted_and_may_not_end_waits():
    world = lab().submit("forever", 1, "web", preemptible=False).decide()
    assert not world.where
    wait = world.explain("forever")
    assert wait.reason is WaitReason.RESERVED_FOR_WINDOW
    assert "reservation of another namespace" in wait.message
    assert "lab" not in wait.message


def test_such_a_job_starts_where_it_leaves_the_window_its_gpus():
    world = lab(gpus=6).submit("forever", 2, "web", preemptible=False).decide()
    assert "forever" in world.where
    world.submit("more", 1, "web", preemptible=False).decide()
    assert "more" not in world.where


def test_a_deadline_after_the_start_of_the_window_is_no_end_in_time():
    world = lab().submit("late", 1, "web", duration=101, preemptible=False).decide()
    assert not world.where
    world.submit("exact", 1, "web", duration=100, preemptible=False).decide()
    assert set(world.where) == {"exact"}


def test_a_preemptible_job_of_unknown_end_runs_until_the_window_begins():
    world = lab().submit("batch", 4, "web").decide(at=1)
    assert "batch" in world.where
    world.decide(at=99)
    assert "batch" in world.where
    world.decide(at=100)
    assert "lab/day stops batch" in world.log
    assert not world.where
    assert world.explain("batch").reason is WaitReason.RESERVED_FOR_WINDOW
    assert world.explain("batch").start == At(200, is_estimated=True)


def test_victims_are_preempted_so_early_that_their_grace_period_ends_at_the_start():
    world = lab(grace=30.0).submit("batch", 4, "web").decide(at=1)
    world.decide(at=69)
    assert world.due_at == pytest.approx(70)
    world.decide(at=70)
    assert "lab/day stops batch" in world.log
    assert "batch" in world.where
    world.decide(at=100)
    assert not world.where
    assert world.reports()["lab/day"].missing == 0
    assert world.reports()["lab/day"].held == 4000


def test_gpus_that_victims_free_before_the_window_go_to_no_job_that_may_not_end():
    world = lab(grace=30.0).submit("batch", 4, "web").decide(at=1).decide(at=70)
    world.end("batch")
    world.submit("next", 4, "web").decide(at=80)
    assert not world.where
    world.submit("short", 4, "web", duration=15).decide(at=81)
    assert set(world.where) == {"short"}


def test_in_the_window_its_jobs_start_before_older_ones_and_others_do_not():
    world = lab().submit("old", 4, "web", priority=5)
    world.now = 100.0
    world.submit("ours", 2, "lab", **of_day()).decide(at=100)
    assert set(world.where) == {"ours"}
    report = world.reports()["lab/day"]
    assert (report.used, report.held, report.missing) == (2000, 2000, 0)


def test_a_job_of_the_owner_that_does_not_name_the_reservation_is_no_job_of_it():
    world = lab().decide(at=100).submit("other", 1, "lab").decide()
    assert not world.where
    assert "time-window reservation day until" in world.explain("other").message


def test_a_job_of_another_namespace_that_names_the_reservation_gets_nothing_of_it():
    world = lab().decide(at=100).submit("thief", 1, "web", **of_day()).decide()
    assert not world.where


def test_after_the_window_its_jobs_run_on_and_others_get_the_rest():
    world = lab().decide(at=100).submit("ours", 2, "lab", **of_day()).decide()
    world.submit("next", 2, "web").decide()
    assert set(world.where) == {"ours"}
    assert world.due_at == pytest.approx(200)
    world.decide(at=200)
    assert set(world.where) == {"next", "ours"}


def test_a_job_larger_than_the_reservation_waits_for_its_turn_and_uses_it_then():
    world = lab(gpus=6).decide(at=100).submit("large", 6, "lab", **of_day()).decide()
    assert "large" in world.where


def test_what_the_window_holds_counts_as_usage_of_its_owner():
    world = lab(gpus=8, nominal=4).decide(at=100)
    usage = world.queue.state.quota.usage
    leaf = world.queue.state.quota.tree.tenant("lab")
    assert usage.used_by(leaf)[""] == 4000
    world.submit("ours", 3, "lab", **of_day()).decide()
    assert usage.used_by(leaf)[""] == 4000
    world.end("ours").decide(at=201)
    assert usage.used_by(leaf).get("", 0) == 0


def test_a_job_that_ran_before_the_reservation_stood_is_preempted_only_by_the_policies():
    reserved = window("lab/day", 4, 100, 200, declared=50)
    kept = World(node("n1", 4), quotas=[quota("lab", 4), quota("web", 4)])
    kept.submit("within", 4, "web").decide(at=1)
    kept.reserve(reserved).decide(at=100)
    assert "within" in kept.where
    assert kept.reports()["lab/day"].missing == 4000
    lent = World(node("n1", 4), quotas=[quota("lab", 4), quota("web", 0)])
    lent.submit("borrows", 4, "web").decide(at=1)
    lent.reserve(reserved).decide(at=100)
    assert "lab/day stops borrows" in lent.log


def test_the_owners_jobs_without_the_reservation_give_way_to_it():
    world = lab().submit("own", 4, "lab", priority=9).decide(at=1).decide(at=100)
    assert "lab/day stops own" in world.log


def test_the_cheapest_victims_are_preempted_and_only_as_many_as_needed():
    world = World(node("n1", 2), node("n2", 2), quotas=[quota("lab", 2), quota("web", 0)])
    world.reserve(window("lab/day", 1, 100, 200, units=2))
    world.submit("old", 2, "web").decide(at=1)
    world.submit("new", 1, "web").decide(at=50)
    world.decide(at=100)
    assert "lab/day stops new" in world.log
    assert not any("old" in line for line in world.log if "stops" in line)
    assert "old" in world.where


def test_units_of_whole_nodes_are_held_on_whole_nodes():
    world = World(node("n1", 4), node("n2", 4), quotas=[quota("lab", 4), quota("web", 0)])
    world.reserve(window("lab/day", 4, 100, 200))
    for name in "abcd":
        world.submit(name, 1, "web").decide(at=1)
    for name in "efgh":
        world.submit(name, 1, "web").decide(at=2)
    world.end("a").end("e").decide(at=3)
    world.decide(at=100)
    stops = [line for line in world.log if line.startswith("lab/day stops")]
    assert sum(len(line.split()) - 2 for line in stops) == 3
    world.submit("ours", 4, "lab", **of_day()).decide()
    assert "ours" in world.where


def test_a_job_with_a_part_of_a_unit_leaves_the_rest_held():
    world = lab().decide(at=100).submit("ours", 1, "lab", **of_day()).decide()
    report = world.reports()["lab/day"]
    assert (report.used, report.held) == (1000, 3000)
    world.submit("web", 1, "web").decide()
    assert "web" not in world.where


def test_when_a_job_of_the_reservation_ends_its_gpus_are_held_again():
    world = (
        lab().decide(at=100).submit("ours", 4, "lab", **of_day()).submit("web", 4, "web").decide()
    )
    world.end("ours").decide(at=120)
    assert not world.where
    assert world.reports()["lab/day"].held == 4000


def test_a_victim_that_does_not_end_is_given_up_and_the_report_says_what_is_missing():
    world = lab(grace=float("inf")).submit("stuck", 4, "web").decide(at=1).decide(at=100)
    assert "lab/day stops stuck" in world.log
    assert world.reports()["lab/day"].victims == ("stuck",)
    assert world.reports()["lab/day"].missing == 0
    world.reserve(window("lab/day", 4, 100, 500))
    world.decide(at=219.9)
    assert world.reports()["lab/day"].victims == ("stuck",)
    world.decide(at=220)
    report = world.reports()["lab/day"]
    assert (report.victims, report.missing) == ((), 4000)
    world.end("stuck").decide(at=221)
    assert world.reports()["lab/day"].held == 4000


def test_an_upcoming_window_reports_what_it_would_lack():
    world = World(node("n1", 4), quotas=[quota("lab", 4)])
    world.submit("held", 3, "lab", preemptible=False).decide(at=1)
    world.reserve(window("lab/day", 4, 100, 200, declared=2))
    report = world.reports()["lab/day"]
    assert (report.is_active, report.missing) == (False, 4000)
    world.end("held")
    assert world.reports()["lab/day"].missing == 0


def test_without_a_reservation_failures_are_forgotten_when_the_window_is_deleted():
    world = lab().decide(at=100).submit("batch", 4, "web").decide()
    assert not world.where
    world.reserve().decide()
    assert set(world.where) == {"batch"}


def test_what_if_answers_what_happens_before_and_in_a_window():
    world = lab().decide(at=100)
    queue, cluster = world.queue.copy(max_reservations=4), world.cluster.fork()
    question = WhatIf(queue, cluster, world.plan, world.now)
    question.settle()
    job = Job(JobId("ours"), Gang.of(1, Request(gpus=1)), tenant=Tenant("lab"), **of_day())
    assert isinstance(question.answer(job), PredictedStart)


def test_a_window_of_no_whole_gpu_or_without_length_is_refused():
    with pytest.raises(InvalidRequest, match="no whole GPU"):
        window("lab/day", 0, 100, 200)
    with pytest.raises(InvalidRequest, match="not after its start"):
        window("lab/day", 1, 100, 100)


def test_a_job_of_an_ungated_pod_respects_windows_and_uses_its_own():
    world = lab().decide(at=100)
    foreign = Job(JobId("pod/1"), Gang.of(1, Request(gpus=1)), tenant=Tenant("web"))
    found = world.queue.try_admit(foreign, world.cluster, world.now, world.plan)
    assert isinstance(found, Wait)
    assert found.reason is WaitReason.RESERVED_FOR_WINDOW
    own = Job(JobId("pod/2"), Gang.of(1, Request(gpus=1)), tenant=Tenant("lab"), **of_day())
    found = world.queue.try_admit(own, world.cluster, world.now, world.plan)
    assert not isinstance(found, Wait)


def test_a_preemptor_that_starts_on_its_reserved_places_counts_once_before_a_window():
    world = lab(gpus=6, grace=5.0).submit("low", 6, "web").decide(at=0)
    world.submit("high", 2, "web", priority=1, preemptible=False).decide(at=1)
    assert "high stops low" in world.log
    world.submit("other", 1, "web", preemptible=False).decide(at=6)
    assert set(world.where) == {"high"}
    assert world.explain("other").reason is WaitReason.RESERVED_FOR_WINDOW


def test_a_job_of_a_window_is_no_victim_of_a_job_for_which_the_window_has_no_gpus():
    """The window would preempt the other job in turn, and so on."""
    world = World(node("n1", 2), quotas=[quota("lab", 1), quota("web", 1)])
    world.reserve(window("lab/day", 1, 100, 200))
    world.submit("rest", 1, "lab", preemptible=False).decide(at=0)
    world.submit("batch", 1, "web").decide(at=1)
    assert set(world.where) == {"rest", "batch"}
    world.submit("own", 1, "lab", **of_day()).decide(at=100)
    assert set(world.where) == {"rest", "own"}
    assert world.log.count("lab/day stops batch") == 1


def test_a_job_of_a_window_is_preempted_by_a_job_of_higher_priority_of_the_same_reservation():
    world = lab().submit("low", 4, "lab", **of_day()).decide(at=100)
    world.submit("high", 4, "lab", priority=1, **of_day()).decide(at=110)
    assert set(world.where) == {"high"}
    world.submit("outside", 4, "lab", priority=2).decide(at=120)
    assert set(world.where) == {"high"}


def test_no_job_is_a_victim_of_a_window_and_of_another_job_in_one_cycle():
    nodes = [node("n1", 1), node("n2", 2)]
    world = World(*nodes, quotas=[quota("lab", 3), quota("web", 0)])
    world.reserve(window("lab/day", 1, 5, 8)).submit("stays", 1, "lab", preemptible=False)
    world.submit("batch", 1, "web", workers=2).decide(at=0)
    assert len(world.where) == 2
    world.submit("claims", 1, "lab", preemptible=False).decide(at=5)
    assert [entry for entry in world.log if "stops batch" in entry] == ["lab/day stops batch"]


def test_a_preemptor_that_would_start_late_and_end_after_the_start_of_a_window_waits():
    world = lab(grace=20.0).submit("low", 4, "web").decide(at=0)
    world.submit("high", 4, "web", priority=1, duration=90, preemptible=False).decide(at=5)
    assert world.log == ["low starts"]


def test_a_preemptor_with_a_late_victim_waits_for_the_window_that_it_would_delay():
    world = lab(grace=20.0, grace_is_known=False).submit("low", 4, "web").decide(at=0)
    world.submit("high", 4, "web", priority=1, duration=90, preemptible=False).decide(at=5)
    assert world.log[-1] == "high stops low"
    world.decide(at=25)
    assert "high gives up" in world.log
    assert "high" not in world.where


def test_larger_units_are_cleared_before_smaller_ones_take_their_node():
    world = World(node("n0", 1), node("n1", 3), node("n2", 1), quotas=[quota("lab", 4)])
    world.reserve(window("lab/day", 3, 4, 5), window("lab/desk", 1, 4, 5))
    world.submit("stays", 1, "lab", preemptible=False).submit("batch", 1, "lab").decide(at=0)
    assert world.where == {"stays": "n0/0", "batch": "n1/0"}
    world.decide(at=4)
    assert {each.missing for each in world.reports().values()} == {0}


def test_no_job_preempts_a_job_of_an_upcoming_window_whose_gpus_it_would_then_lack():
    world = lab(gpus=5).submit("own", 2, "lab", **of_day()).decide(at=0)
    world.submit("high", 4, "lab", priority=1, preemptible=False).decide(at=1)
    assert world.log == ["own starts"]


def test_no_preemptor_takes_free_gpus_of_a_window_whose_victims_end_after_its_start():
    world = World(node("n1", 3), quotas=[quota("lab", 3)], grace=20.0)
    world.reserve(window("lab/day", 1, 100, 200))
    world.submit("brief", 1, "lab").submit("low", 2, "lab").decide(at=0).end("brief")
    world.submit("high", 2, "lab", priority=1, preemptible=False).decide(at=90)
    assert "high stops low" not in world.log


def test_victims_end_in_time_for_a_window_that_begins_while_another_lasts():
    world = World(node("n1", 3), quotas=[quota("lab", 3)], grace=20.0)
    world.reserve(window("lab/day", 1, 130, 200), window("lab/desk", 1, 100, 200))
    world.submit("stays", 1, "lab", preemptible=False).submit("batch", 1, "lab").decide(at=0)
    world.decide(at=100)
    assert len(world.where) == 2
    world.decide(at=110)
    assert "stops batch" in world.log[-1]


def test_no_job_takes_the_gpus_of_a_window_from_a_job_that_is_larger_than_it():
    world = World(node("n1", 3), quotas=[quota("lab", 2), quota("web", 1)])
    world.reserve(window("lab/day", 1, 100, 200, units=2))
    world.submit("large", 3, "lab", **of_day()).decide(at=1)
    world.submit("two", 2, "web", preemptible=False).decide(at=110)
    assert set(world.where) == {"large"}
    world.submit("one", 1, "web", preemptible=False).decide(at=120)
    assert set(world.where) == {"one"}


@pytest.mark.parametrize("retry", [0.0, 7.0])
def test_a_victim_with_a_long_grace_period_ends_in_time_for_a_window_of_many_units(retry):
    rules = with_rules(preemption=replace(AT_ONCE, retry_seconds=retry))
    quotas = [quota("lab", 12), quota("web", 0)]
    world = World(node("n1", 12), quotas=quotas, grace=60.0, rules=rules)
    world.reserve(window("lab/day", 1, 100, 200, units=12))
    for number in range(9):
        world.submit(f"short{number}", 1, "web", grace_seconds=5.0)
    world.submit("slow", 3, "web").decide(at=1)
    for second in (30, 34, 39):
        world.decide(at=second)
        assert world.due_at <= 40
    world.decide(at=40)
    assert any("slow" in line and "stops" in line for line in world.log)


def test_each_window_of_a_repeated_reservation_is_checked_by_itself():
    world = World(node("n1", 8), quotas=[quota("lab", 8)])
    first, second = window("lab/day", 4, 100, 200), window("lab/day", 4, 300, 400)
    world.reserve(first, window("lab/desk", 4, 290, 400), second)
    world.submit("forever", 1, "lab", preemptible=False).decide(at=0)
    assert not world.where
