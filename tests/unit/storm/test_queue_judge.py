# SPDX-License-Identifier: Apache-2.0
"""The storm's outside watcher sees each invariant that is broken, and nothing where none is."""

import dataclasses
import json

import pytest
from pod_rules import Gpu, Limit
from queue_judge import End, Judge, Terms, unexpected_ends
from storm_views import Held, SeenAttempt, SeenJob, SeenPod, read_job, read_pod

GIB = 1024
GPUS = {
    "a": Gpu("H100", 80 * GIB),
    "b": Gpu("H100", 80 * GIB),
    "c": Gpu("H100", 80 * GIB),
    "t": Gpu("T4", 16 * GIB),
}
LIMITS = (
    Limit("namespace x", frozenset({"x"}), "H100", 2),
    Limit("cohort", frozenset({"x", "y"}), "T4", 1),
)


@pytest.fixture
def judge():
    terms = Terms(gpus=GPUS, limits=LIMITS, deletable=frozenset({"x/deleted"}), slack_seconds=10)
    return Judge(terms)


def whole(*uuids):
    return tuple(Held(uuid, 100, GPUS[uuid].memory_mib) for uuid in uuids)


def pod(uid="p", *held, namespace="x", node="n", **more):
    return SeenPod(uid=uid, namespace=namespace, name=uid, node=node, held=held, **more)


def worker(index, attempt=1, *held, uid="", **more):
    name = uid or f"w-{attempt}-{index}"
    return pod(name, *held, job_uid="j", attempt=attempt, workers=frozenset({index}), **more)


def job(uid="j", *attempts, **more):
    numbered = tuple(
        SeenAttempt(number, 0.0, outcome) for number, outcome in enumerate(attempts, start=1)
    )
    fields = {"namespace": "x", "name": uid, "attempt": len(attempts), **more}
    fields.setdefault("least", fields.get("workers", 1))
    return SeenJob(uid=uid, attempts=numbered, **fields)


def wrong(judge):
    """The only thing that is wrong."""
    (text,) = judge.violations
    return text


def test_a_job_that_is_stopped_starts_again_and_ends_well_is_no_violation(judge):
    judge.job(job("j", "", phase="Running", workers=2, placed=((0, 1), 2)), 0)
    judge.pod(worker(0, 1, *whole("a")), 1)
    judge.pod(worker(1, 1, *whole("b")), 1)
    judge.tick(500)
    judge.job(job("k", namespace="y", phase="Pending", victims={"j/1": "Priority"}), 501)
    judge.job(job("j", "Preempted", phase="Pending", workers=2), 502)
    for index, uuid in enumerate("ab"):
        judge.pod(worker(index, 1, *whole(uuid), ended=True), 503)
    judge.job(job("k", "", namespace="y", phase="Running", placed=((0,), 1)), 504)
    judge.pod(pod("k-1", *whole("a"), namespace="y", job_uid="k", attempt=1, workers={0}), 504)
    judge.pod(worker(0, 2, *whole("b")), 505)
    judge.pod(worker(1, 2, *whole("c")), 505)
    judge.job(job("j", "Preempted", "", phase="Running", workers=2, placed=((0, 1), 2)), 505)
    judge.job(job("j", "Preempted", "Succeeded", phase="Succeeded", workers=2), 506)
    judge.job(job("deleted"), 507)
    judge.job(job("deleted"), 508, gone=True)
    assert (judge.violations, judge.preemptions.count, judge.preemptions.unseen) == ({}, 1, 0)


def test_shares_that_fit_one_gpu_are_no_violation(judge):
    judge.pod(pod("p", Held("a", 60, GIB)), 0)
    judge.pod(pod("q", Held("a", 40, GIB), namespace="y"), 0)
    assert judge.violations == {}
    assert judge.gpus.held == {"a": 100}


def test_a_whole_gpu_held_by_two_pods_is_a_violation(judge):
    judge.pod(pod("p", *whole("a")), 0)
    judge.pod(pod("q", *whole("a"), namespace="y"), 0)
    assert wrong(judge) == "GPU a is held 200 % by x/p and y/q"


def test_a_share_on_a_gpu_that_is_held_whole_is_a_violation(judge):
    judge.pod(pod("p", *whole("a")), 0)
    judge.pod(pod("q", Held("a", 1, 1)), 0)
    assert wrong(judge).startswith("GPU a is held 101 %")


def test_shares_beyond_a_gpu_s_memory_are_seen(judge):
    judge.pod(pod("p", Held("a", 10, 50 * GIB)), 0)
    judge.pod(pod("q", Held("a", 10, 31 * GIB), namespace="y"), 0)
    assert wrong(judge) == "82944 of 81920 MiB of GPU a are held by x/p and y/q"


def test_an_unknown_gpu_is_a_violation(judge):
    judge.pod(pod("p", Held("nowhere", 100, 1)), 0)
    assert wrong(judge) == "no node has GPU nowhere, which x/p holds"


def test_a_namespace_beyond_its_limit_is_a_violation(judge):
    judge.pod(pod("p", *whole("a", "b")), 0)
    judge.pod(pod("q", Held("c", 10, 40 * GIB)), 0)
    assert wrong(judge) == "namespace x uses 2.5 of 2 H100"


def test_a_cohort_beyond_its_limit_is_a_violation(judge):
    judge.pod(pod("p", Held("t", 60, 1), namespace="x"), 0)
    judge.pod(pod("q", Held("t", 20, 8 * GIB), namespace="y"), 0)
    assert wrong(judge) == "cohort uses 1.1 of 1 T4"


def test_two_attempts_whose_pods_run_are_seen(judge):
    judge.pod(worker(0, 1, *whole("a")), 0)
    judge.pod(worker(0, 2, *whole("b")), 0)
    assert wrong(judge) == "attempts [1, 2] of one GPUJob run: x/w-1-0, w-2-0"


def test_a_deleted_pod_does_not_run_where_the_power_was_lost(judge):
    judge.pod(worker(0, 1, *whole("a"), deleted_by=5.0), 0)
    judge.lost_power("n", 3)
    judge.pod(worker(0, 2, *whole("b"), node="m"), 4)
    assert judge.violations == {}


@pytest.mark.parametrize(("off", "deleted_by"), [("m", 5.0), ("n", None)])
def test_a_pod_may_run_on_a_node_with_power_and_anywhere_before_it_is_deleted(
    judge, off, deleted_by
):
    judge.pod(worker(0, 1, *whole("a"), deleted_by=deleted_by), 0)
    judge.lost_power(off, 3)
    judge.pod(worker(0, 2, *whole("b")), 6)
    assert "attempts [1, 2]" in wrong(judge)


def test_pods_on_a_removed_node_neither_run_nor_hold_gpus(judge):
    judge.pod(worker(0, 1, *whole("a", "b"), node="grown"), 1)
    judge.taken_away("grown", 2)
    judge.pod(worker(0, 2, *whole("a", "b")), 3)
    judge.pod(worker(0, 1, *whole("a", "b"), node="grown", deleted_by=4), 4)
    assert judge.violations == {}


def test_on_one_that_is_there_again_pods_run_and_hold(judge):
    judge.taken_away("grown", 1)
    judge.there("grown")
    judge.pod(worker(0, 1, *whole("a"), node="grown"), 2)
    judge.pod(pod("other", *whole("a"), node="grown"), 3)
    assert "GPU a is held 200 %" in wrong(judge)


def test_two_attempts_that_a_status_calls_running_are_seen(judge):
    judge.job(job("j", "", "", max_restarts=1), 0)
    assert wrong(judge) == "x/j has attempts [1, 2] at once by its status"


def test_places_for_some_workers_are_seen(judge):
    judge.job(job("j", "", phase="Admitted", workers=3, placed=((0, 2), 2)), 0)
    assert wrong(judge) == "x/j has places for workers [0, 2] of 3"


def test_places_with_too_few_gpus_are_seen(judge):
    judge.job(job("j", "", phase="Admitted", workers=2, gpus=2, placed=((0, 1), 3)), 0)
    assert wrong(judge) == "x/j has 3 GPUs for 2 workers of 2"


def test_a_gang_that_is_partly_bound_for_too_long_is_a_violation(judge):
    judge.job(job("j", "", phase="Admitted", workers=2, placed=((0, 1), 2)), 0)
    judge.pod(worker(0, 1, *whole("a")), 1)
    judge.tick(70)
    assert judge.violations == {}
    judge.tick(71)
    assert wrong(judge) == "attempt 1 of x/j has nodes for 1 of 2 for too long"


def test_a_victim_without_a_preemptor_is_a_violation(judge):
    judge.job(job("j", "", phase="Running"), 0)
    judge.job(job("j", "Preempted", phase="Pending"), 1)
    judge.tick(10)
    assert judge.violations == {}
    judge.tick(11)
    assert wrong(judge) == "x/j was stopped or shrunk, and no preemptor named its attempt j/1"


def test_a_victim_that_is_named_only_after_its_end_is_a_violation(judge):
    judge.job(job("j", "Preempted", phase="Pending"), 1)
    judge.job(job("k", namespace="y", victims={"j/1": "Priority"}), 2)
    judge.tick(11)
    assert "no preemptor named its attempt j/1" in wrong(judge)


@pytest.mark.parametrize("at", [0, 5])
def test_a_victim_that_a_pod_names_is_named_whichever_watch_tells_first(judge, at):
    events = {
        at: lambda: judge.pod(pod("p", node="", victims={"j/1": "InCohortReclamation"}), at),
        2: lambda: judge.job(job("j", "Preempted", phase="Pending"), 2),
    }
    for _, event in sorted(events.items()):
        event()
    judge.tick(20)
    assert judge.violations == {}


def test_a_victim_whose_pod_the_watch_could_not_show_is_counted(judge):
    judge.preemptions.pods_listed(0)
    judge.job(job("j", "Preempted", phase="Pending"), 1)
    judge.tick(11)
    assert (judge.violations, judge.preemptions.unseen) == ({}, 1)


def test_a_preemption_that_the_watch_could_not_show_is_counted(judge):
    judge.job(job("j", "Preempted", phase="Pending"), 1, blind=True)
    assert (judge.violations, judge.preemptions.unseen) == ({}, 1)


@pytest.mark.parametrize("priority", [0, 5])
def test_a_victim_of_no_lower_priority_in_the_same_namespace_is_a_violation(judge, priority):
    judge.job(job("j", "", phase="Running", priority=priority), 0)
    judge.job(job("k", victims={"j/1": "Priority"}), 1)
    assert wrong(judge) == f"x/j of priority {priority} is to end for x/k of priority 0"


@pytest.mark.parametrize(("turns", "seen"), [(3, False), (4, True)])
def test_repeated_mutual_preemption_is_a_violation(judge, turns, seen):
    outcomes = {"j": [], "k": []}
    for turn in range(turns):
        loser, winner = ("j", "k") if turn % 2 == 0 else ("k", "j")
        victims = {f"{loser}/{len(outcomes[loser]) + 1}": "InCohortFairSharing"}
        judge.job(job(winner, *outcomes[winner], namespace=winner, victims=victims), turn)
        outcomes[loser].append("Preempted")
        judge.job(job(loser, *outcomes[loser], namespace=loser, phase="Pending"), turn)
    violation = "k/k and j/j were stopped for each other in turn: " + ", ".join(
        ["InCohortFairSharing"] * turns
    )
    assert list(judge.violations) == [violation] * seen


def test_a_lost_job_is_a_violation(judge):
    judge.job(job("j"), 0)
    judge.job(job("j"), 1, gone=True)
    assert wrong(judge) == "x/j is gone, and no user deleted it"


@pytest.mark.parametrize("phase", ["Running", "Failed", ""])
def test_a_restart_of_an_ended_job_is_a_violation(judge, phase):
    judge.job(job("j", "Succeeded", phase="Succeeded"), 0)
    judge.job(job("j", "Succeeded", phase=phase), 1)
    assert wrong(judge) == f"x/j was Succeeded and is {phase or 'nothing'}"


def test_a_lost_attempt_is_a_violation(judge):
    judge.job(job("j", "Infrastructure", ""), 0)
    judge.job(job("j", "Infrastructure"), 1)
    assert wrong(judge) == "x/j was at attempt 2 and is at 1"


def test_more_restarts_than_allowed_are_seen(judge):
    judge.job(job("j", "Failed", "Failed", "Failed", restarts=2, max_restarts=1), 0)
    assert "x/j has restarted 2 of 1 times" in judge.violations


def test_more_attempts_than_are_accounted_for_are_seen(judge):
    judge.job(job("j", "Infrastructure", "Failed", "", restarts=0, max_restarts=0), 0)
    assert wrong(judge) == "x/j has had 3 attempts, 1 of which are free"


def test_ends_are_held_against_specs():
    jobs = [
        job("good", phase="Succeeded", reason="Completed"),
        job("bad", phase="Failed", reason="WorkerFailed", restarts=1),
        job("deleted"),
    ]
    expected = {
        "x/good": End("Succeeded", "Completed"),
        "x/bad": End("Failed", "WorkerFailed", 2),
        "x/deleted": None,
        "x/lost": End("Succeeded", "Completed"),
    }
    first, second, third = unexpected_ends(jobs, expected)
    assert first.startswith("x/bad ended as End(phase='Failed', reason='WorkerFailed', restarts=1)")
    assert second == "x/deleted is there still"
    assert third.startswith("x/lost ended as None")


def test_a_pod_is_read_from_the_api_s_json():
    devices = [{"uuid": "a", "percent": 50, "memoryMiB": 7}]
    found = read_pod(
        {
            "metadata": {
                "uid": "u",
                "namespace": "x",
                "name": "p",
                "creationTimestamp": "1970-01-01T00:00:01Z",
                "deletionTimestamp": "1970-01-01T00:00:09Z",
                "labels": {
                    "gpupack.dev/job-uid": "j",
                    "gpupack.dev/attempt": "2",
                    "batch.kubernetes.io/job-completion-index": "3",
                },
                "annotations": {"gpupack.dev/devices": json.dumps(devices)},
            },
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        }
    )
    more = {"node": "n", "created": 1.0, "deleted_by": 9.0, "held": (Held("a", 50, 7),)}
    expected = SeenPod(
        uid="u", namespace="x", name="p", job_uid="j", attempt=2, workers={3}, ended=False, **more
    )
    assert found == expected
    assert found.holds == expected.held
    assert dataclasses.replace(found, ended=True).holds == ()


def test_the_workers_of_a_pod_are_its_containers_with_gpus():
    gpus = {"limits": {"gpupack.dev/gpu": "1"}}
    containers = [{"name": "proxy"}, *({"name": f"w-{n}", "resources": gpus} for n in (4, 7))]
    metadata = {
        "uid": "u",
        "namespace": "x",
        "name": "p",
        "creationTimestamp": "1970-01-01T00:00:01Z",
        "labels": {"batch.kubernetes.io/job-completion-index": "4"},
    }
    assert read_pod({"metadata": metadata, "spec": {"containers": containers}}).workers == {4, 7}


def test_a_job_is_read_from_the_api_s_json():
    found = read_job(
        {
            "metadata": {"uid": "u", "namespace": "x", "name": "j"},
            "spec": {
                "workers": 4,
                "minWorkers": 3,
                "gpus": 2,
                "priorityClassName": "high",
                "maxRestarts": 1,
                "movable": True,
            },
            "status": {
                "phase": "Running",
                "attempt": 2,
                "restarts": 1,
                "attempts": [
                    {
                        "number": 1,
                        "startedAt": "1970-01-01T00:00:01Z",
                        "finishedAt": "1970-01-01T00:00:02Z",
                        "outcome": "Preempted",
                        "reason": "Maintenance",
                    },
                    {"number": 2, "startedAt": "1970-01-01T00:00:02Z"},
                ],
                "placement": [
                    {"node": "n", "workers": "0-1,3", "gpus": ["a", "b", "c", "d", "e", "f"]},
                    {"node": "m", "workers": "2", "gpus": ["g", "h"]},
                ],
                "width": {"workers": 4, "reason": "ElasticScaleDown"},
                "preemption": {
                    "victims": [{"reason": "Priority", "attempts": ["v/1"]}],
                    "placement": [{"node": "k", "workers": "0", "gpus": ["i"]}],
                },
            },
        },
        {"high": 7},
    )
    assert (found.priority, found.placed, found.victims) == (
        7,
        ((0, 1, 2, 3), 8),
        {"v/1": "Priority"},
    )
    assert found.attempts[0] == SeenAttempt(1, 1.0, "Preempted", "Maintenance", 2.0)
    assert found.running == (SeenAttempt(2, 2.0),)
    assert (found.least, found.extra_workers, found.resized) == (3, {3}, "ElasticScaleDown")
    assert found.movable
    assert (found.places, found.kept) == (frozenset("nmabcdefgh"), frozenset("ki"))


def attempts_of(seen, *attempts):
    return dataclasses.replace(seen, attempts=attempts)


def on(*places):
    return {"places": frozenset(places)}


def test_a_drain_for_maintenance_of_its_node_is_no_violation(judge):
    for uid in ("Moved", "Preempted"):
        judge.job(attempts_of(job(uid, "", **on("n", "a")), SeenAttempt(1, 10.0)), 10)
    judge.service.out(judge.service.ask("n", "All", 50), 61)
    judge.service.back("n", 61)
    for uid in ("Moved", "Preempted"):
        ends = SeenAttempt(1, 10.0, uid, "Maintenance")
        judge.job(attempts_of(job(uid, uid, movable=True), ends), 62)
    judge.tick(100)
    assert (judge.violations, judge.service.moves, judge.service.stops) == ({}, 1, 1)


def test_a_drain_may_act_before_it_is_heard_that_it_is_written(judge):
    judge.job(attempts_of(job("j", "", **on("n")), SeenAttempt(1, 10.0)), 10)
    judge.service.ask("n", "All", 50)
    judge.job(
        attempts_of(job("j", "Preempted"), SeenAttempt(1, 10.0, "Preempted", "Maintenance")), 51
    )
    assert (judge.violations, judge.service.stops) == ({}, 1)


@pytest.mark.parametrize(
    ("drain", "node", "ended", "outcome", "said"),
    [
        ("Never", "n", 60.0, "Moved", "attempt 1 of x/j was moved for no maintenance of"),
        ("Movable", "n", 60.0, "Preempted", "attempt 1 of x/j was stopped for no maintenance"),
        ("All", "elsewhere", 60.0, "Moved", "attempt 1 of x/j was moved for no maintenance"),
        ("All", "n", 40.0, "Moved", "attempt 1 of x/j was moved for no maintenance"),
        ("All", "n", 99.0, "Preempted", "attempt 1 of x/j was stopped for no maintenance"),
    ],
    ids=["no drain", "not all", "another node", "before", "long after"],
)
def test_a_drain_without_maintenance_is_a_violation(judge, drain, node, ended, outcome, said):
    judge.service.out(judge.service.ask("n", drain, 50), 50)
    judge.service.back("n", 80)
    judge.job(attempts_of(job("j", "", **on(node)), SeenAttempt(1, 10.0)), 10)
    attempt = SeenAttempt(1, 10.0, outcome, "Maintenance", ended)
    judge.job(attempts_of(job("j", outcome, movable=True), attempt), ended)
    assert said in wrong(judge)


def test_a_move_of_a_job_that_is_not_movable_is_a_violation(judge):
    judge.job(job("j", "Moved", phase="Pending"), 10)
    assert wrong(judge) == "x/j was moved, and does not say that it may be"


@pytest.mark.parametrize("out", ["n", "a"], ids=["node", "GPU"])
def test_an_admission_to_a_node_in_maintenance_is_a_violation(judge, out):
    judge.service.out(judge.service.ask(out, "Never", 50), 50)
    judge.job(attempts_of(job("j", "", **on("n", "a")), SeenAttempt(1, 56.0)), 57)
    text = f"attempt 1 of x/j was let in on {out}, which was out of service for 6 s"
    assert wrong(judge) == text


@pytest.mark.parametrize("started", [49.0, 54.0, 69.0, 71.0])
def test_an_admission_before_or_after_maintenance_is_no_violation(judge, started):
    judge.service.out(judge.service.ask("n", "Never", 50), 50)
    judge.service.back("n", 69.9)
    judge.job(attempts_of(job("j", "", **on("n")), SeenAttempt(1, started)), 72)
    assert judge.violations == {}


def test_an_admission_to_gpus_reserved_before_is_no_violation(judge):
    judge.job(job("j", phase="Pending", kept=frozenset({"n"})), 40)
    judge.service.out(judge.service.ask("n", "Never", 50), 50)
    judge.job(attempts_of(job("j", "", **on("n")), SeenAttempt(1, 60.0)), 61)
    assert judge.violations == {}


def elastic(*workers, resized="", attempts=("",), **more):
    """A gang of two to four workers, with places for some."""
    placed = (workers, len(workers))
    return job(
        "j", *attempts, phase="Running", workers=4, least=2, placed=placed, resized=resized, **more
    )


def grown(*places, workers, at, judge):
    """A gang that began at 56, by then on these nodes."""
    seen = elastic(*range(workers), resized="GangGrew", **on(*places))
    judge.job(attempts_of(seen, SeenAttempt(1, 56.0)), at)


def test_growth_on_a_node_after_its_maintenance_is_no_violation(judge):
    judge.service.out(judge.service.ask("n", "Never", 50), 50)
    grown("m", workers=2, at=57, judge=judge)
    judge.service.back("n", 70)
    grown("m", "n", workers=3, at=75, judge=judge)
    assert judge.violations == {}


def test_a_gang_first_seen_long_after_it_began_may_have_grown(judge):
    judge.service.out(judge.service.ask("n", "Never", 50), 50)
    judge.service.back("n", 70)
    grown("m", "n", workers=3, at=75, judge=judge)
    assert judge.violations == {}


def test_growth_on_a_node_in_maintenance_is_a_violation(judge):
    judge.service.out(judge.service.ask("n", "Never", 50), 50)
    grown("m", workers=2, at=57, judge=judge)
    grown("m", "n", workers=3, at=65, judge=judge)
    assert "was let in on n, which was out of service for 15 s" in wrong(judge)


def test_a_gang_that_grows_and_shrinks_for_a_preemptor_is_no_violation(judge):
    judge.job(elastic(0, 1), 0)
    judge.job(elastic(0, 1, 2, 3, resized="GangGrew"), 1)
    judge.job(job("k", namespace="y", phase="Pending", victims={"j/1+2": "ElasticScaleDown"}), 2)
    judge.job(elastic(0, 1, 2, resized="ElasticScaleDown"), 3)
    judge.job(elastic(0, 1, resized="WorkerFailed"), 4)
    judge.tick(100)
    assert (judge.violations, judge.preemptions.shrinks) == ({}, 1)


def test_a_gang_that_shrinks_without_a_preemptor_is_a_violation(judge):
    judge.job(elastic(0, 1, 2, 3), 0)
    judge.job(elastic(0, 1, 3, resized="ElasticScaleDown"), 1)
    judge.tick(11)
    assert wrong(judge) == "x/j was stopped or shrunk, and no preemptor named its attempt j/1+1"


def test_workers_that_end_with_their_attempt_are_no_violation(judge):
    judge.job(elastic(0, 1, 2, 3, resized="ElasticScaleDown"), 0)
    judge.job(elastic(attempts=("Succeeded",), resized="ElasticScaleDown"), 1)
    judge.tick(100)
    assert judge.violations == {}


def test_an_elastic_gang_without_one_of_its_minimum_workers_is_a_violation(judge):
    judge.job(elastic(0, 2), 0)
    assert wrong(judge) == "x/j has places for workers [0, 2] of 4"


def consolidated(priority=0):
    """Job j moves, by its status."""
    moved = SeenAttempt(1, 0.0, "Moved", "Consolidation", 5.0)
    seen = job("j", "Moved", phase="Pending", movable=True, priority=priority)
    return attempts_of(seen, moved)


def test_a_move_for_a_job_that_names_it_is_no_violation(judge):
    judge.job(job("j", "", phase="Running", movable=True), 0)
    judge.job(job("k", phase="Pending", victims={"j/1": "Consolidation"}), 1)
    judge.job(consolidated(), 5)
    judge.tick(100)
    assert (judge.violations, judge.preemptions.consolidations) == ({}, 1)


def test_a_move_without_a_preemptor_is_a_violation(judge):
    judge.job(job("j", "", phase="Running", movable=True), 0)
    judge.job(consolidated(), 5)
    judge.tick(20)
    assert wrong(judge) == "x/j was stopped or shrunk, and no preemptor named its attempt j/1"


def test_a_move_for_a_job_of_lower_priority_is_a_violation(judge):
    judge.job(job("j", "", phase="Running", movable=True, priority=1), 0)
    judge.job(job("k", phase="Pending", victims={"j/1": "Consolidation"}), 1)
    assert wrong(judge) == "x/j of priority 1 is to end for x/k of priority 0"
