# SPDX-License-Identifier: Apache-2.0
"""No usage is lost or counted twice, whenever the process is killed."""

import random

import pytest
from accounts import bound_pod, gpu_job
from extender_builders import gpu_node, whole

from gpupack_cost import Group

PLACED = (("a", whole("a", 0)), ("b", whole("b", 0)))


def test_usage_is_not_counted_again_after_a_restart(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.at(8000)
    accounts.restart()
    accounts.at(8100)
    assert accounts.seconds() == {"Pod/one": 8100}


def test_missed_ends_are_read_from_existing_objects(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.at(7300)
    accounts.kill()
    accounts.show("pods", bound_pod("one", bound=0, ended=7000), seen=False)
    accounts.show(
        "pods", bound_pod("two", devices=whole("a", 1), bound=7400, ended=7500), seen=False
    )
    accounts.time = 20_000
    accounts.start()
    accounts.at(20_001)
    assert accounts.seconds() == {"Pod/one": 7000, "Pod/two": 100}


def test_a_removed_object_ended_when_all_objects_were_last_seen(accounts):
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.at(100)
    accounts.kill()
    accounts.delete("pods", bound_pod("one", bound=0), seen=False)
    accounts.time = 900
    accounts.start()
    accounts.at(1000)
    assert accounts.seconds() == {"Pod/one": 100}


def test_unseen_attempts_are_counted_by_their_status_entries(accounts):
    accounts.kill()
    attempts = [(100, 200), (300, 350), (400, None)]
    spec = {"workers": 2, "gpus": 2}
    accounts.show(
        "jobs", gpu_job("gang", attempts=attempts, spec=spec, phase="Pending"), seen=False
    )
    accounts.time = 1000
    accounts.start()
    accounts.at(1000)
    assert accounts.seconds() == {"gang": (100 + 50) * 4}
    assert accounts.seconds(Group.MODEL) == {"NVIDIA H100 80GB HBM3": 600}


def test_attempts_that_ended_during_downtime_count_until_their_workers_ended(accounts):
    accounts.kill()
    spec = {"workers": 2}
    unseen = gpu_job("gang", attempts=[(100, 900, 200), (1000, None)], spec=spec, phase="Pending")
    accounts.show("jobs", unseen, seen=False)
    accounts.time = 1000
    accounts.start()
    accounts.at(1000)
    assert accounts.seconds() == {"gang": 2 * 100}


def test_a_job_that_ran_during_downtime_is_counted_by_its_placement(accounts):
    accounts.kill()
    done = gpu_job("gang", attempts=[(100, 200)], placed=PLACED, phase="Succeeded")
    accounts.show("jobs", done, seen=False)
    accounts.time = 1000
    accounts.start()
    accounts.at(1000)
    assert accounts.seconds() == {"gang": 200}


def test_a_settled_attempt_is_not_counted_again(accounts):
    accounts.show("jobs", gpu_job("gang", attempts=[(0, None)], placed=PLACED))
    again = [(0, 50), (60, None)]
    accounts.time = 70
    accounts.show("jobs", gpu_job("gang", attempts=again, placed=PLACED))
    accounts.at(500)
    assert not [key for key in accounts.tracker.claims if "/1/" in key]
    accounts.restart()
    accounts.at(600)
    assert accounts.seconds() == {"gang": 2 * (50 + 540)}
    accounts.delete("jobs", gpu_job("gang", attempts=again, placed=PLACED))
    accounts.at(700)
    accounts.at(701)
    assert accounts.tracker.settled == {}
    assert accounts.tracker.claims == {}


def test_a_job_deleted_during_downtime_ended_when_all_objects_were_last_seen(accounts):
    shown = gpu_job("gang", attempts=[(0, None)], placed=PLACED)
    accounts.show("jobs", shown)
    accounts.at(90)
    accounts.kill()
    accounts.delete("jobs", shown, seen=False)
    accounts.time = 400
    accounts.start()
    accounts.at(500)
    assert accounts.seconds() == {"gang": 180}


def test_without_its_file_the_service_counts_from_existing_objects(accounts):
    accounts.show("pods", bound_pod("gone", bound=0))
    accounts.show("pods", bound_pod("there", devices=whole("a", 1), bound=0))
    accounts.delete("pods", bound_pod("gone", bound=0))
    accounts.at(5000)
    accounts.restart(lose_file=True)
    accounts.at(6000)
    assert accounts.seconds() == {"Pod/there": 6000}


def test_a_terminating_holder_is_counted_across_a_restart(accounts):
    accounts.show("pods", bound_pod("ghost", bound=0))
    accounts.delete("pods", bound_pod("ghost", bound=0))
    accounts.show("gpus", gpu_node("a", lingering={"ghost": whole("a", 0)}))
    accounts.at(100)
    accounts.restart()
    accounts.at(250)
    assert accounts.seconds() == {"Pod/ghost": 250}
    accounts.show("gpus", gpu_node("a"))
    accounts.at(400)
    assert accounts.seconds() == {"Pod/ghost": 250}


def test_usage_is_priced_by_the_prices_of_its_time(accounts):
    accounts.prices = {"*": 10.0}
    accounts.restart(lose_file=True)
    accounts.show("pods", bound_pod("one", bound=0))
    accounts.at(1800)
    accounts.prices = {"H100": 20.0, "*": 1.0}
    accounts.restart()
    accounts.at(3600)
    (line,) = accounts.lines(Group.NAMESPACE)
    assert line.cost == pytest.approx(5.0 + 10.0)


def test_unchanged_prices_create_no_new_price_list(accounts):
    accounts.restart()
    accounts.restart()
    assert len(accounts.recorder.tariffs.each) == 1


def test_data_older_than_the_retention_is_deleted(accounts):
    accounts.show("pods", bound_pod("one", bound=0, ended=100))
    accounts.time = 500 * 86_400
    accounts.restart()
    accounts.at(500 * 86_400 + 1)
    assert accounts.seconds(Group.NAMESPACE, until=600 * 86_400) == {}


@pytest.mark.parametrize("seed", range(20))
def test_sums_equal_the_pods_times_after_many_kills(accounts, seed):
    """Pods start and end at random; the process is killed at any time and started later."""
    draw = random.Random(seed)
    alive, due, expected = True, {}, 0.0
    for step in range(150):
        accounts.time += draw.randrange(1, 900)
        match draw.choice(("start", "start", "end", "end", "kill", "wait")):
            case "start":
                name, gpus = f"p{step}", draw.randrange(1, 4)
                devices = whole("a", *range(gpus))
                pod = {"devices": devices, "bound": accounts.time}
                due[name] = pod
                accounts.show("pods", bound_pod(name, **pod), seen=alive)
            case "end" if due:
                name = draw.choice(sorted(due))
                pod = due.pop(name)
                expected += len(pod["devices"]) * (accounts.time - pod["bound"])
                accounts.show("pods", bound_pod(name, **pod, ended=accounts.time), seen=alive)
            case "kill" if alive:
                accounts.kill()
                alive = False
            case "kill":
                accounts.start()
                alive = True
            case _ if alive:
                accounts.at(accounts.time)
    if not alive:
        accounts.start()
    expected += sum(len(pod["devices"]) * (accounts.time - pod["bound"]) for pod in due.values())
    assert sum(accounts.seconds(Group.NAMESPACE).values()) == pytest.approx(expected, abs=1e-6)


def test_a_terminating_holder_on_a_removed_node_holds_no_gpu(accounts):
    accounts.show("pods", bound_pod("ghost", bound=0))
    accounts.delete("pods", bound_pod("ghost", bound=0))
    accounts.show("gpus", gpu_node("a", lingering={"ghost": whole("a", 0)}))
    accounts.at(100)
    accounts.delete("gpus", gpu_node("a"), seen=False)
    accounts.time = 250
    accounts.restart()
    accounts.at(400)
    assert accounts.seconds() == {"Pod/ghost": 100}
