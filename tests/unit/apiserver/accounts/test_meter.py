# SPDX-License-Identifier: Apache-2.0
import pytest
from accounts import DAY, bound_pod
from extender_builders import OBSERVED, gpu_node, node, observed_node, part, uuid, whole

from gpupack_apiserver.accounts.readings import Reading
from gpupack_cost import Group


class FixedReadings:
    """Readings by UUID."""

    def __init__(self, **readings):
        self.readings = readings

    def get(self, node, uuid):
        del node
        return self.readings.get(uuid)


def report(accounts, **by_uuid):
    """Restart the meter with these readings; the names are NODE_NUMBER."""
    named = {uuid(*name.split("_")): reading for name, reading in by_uuid.items()}
    accounts.readings = FixedReadings(**named)
    accounts.restart()
    accounts.look()


def line(accounts):
    (found,) = accounts.lines(Group.NAMESPACE)
    return found.amounts


def unheld(accounts):
    reader = accounts.recorder.reader()
    found = reader.unheld(DAY, DAY + 86_400)
    reader.close()
    return found


def test_usage_is_the_held_part_times_the_busy_fraction(accounts):
    report(accounts, a_0=Reading(busy_percent=25.0))
    accounts.show("pods", bound_pod("one", bound=30))
    for _ in range(4):
        accounts.look()
    assert line(accounts).used_hours == pytest.approx(120 * 0.25 / 3600)
    assert line(accounts).idle_hours == pytest.approx(120 * 0.75 / 3600)
    assert line(accounts).unknown_hours == 0


def test_unmeasured_time_is_unknown_and_not_idle(accounts):
    report(accounts)
    accounts.show("pods", bound_pod("one", bound=30))
    for _ in range(4):
        accounts.look()
    assert (line(accounts).used_hours, line(accounts).idle_hours) == (None, None)
    assert line(accounts).energy_kwh is None
    assert line(accounts).unknown_hours == pytest.approx(120 / 3600)


def test_only_the_measured_time_of_a_gpu_is_known(accounts):
    report(accounts, a_0=Reading(busy_percent=0.0))
    accounts.show("pods", bound_pod("one", bound=30))
    accounts.look()
    accounts.readings.readings.clear()
    accounts.look()
    assert line(accounts).used_hours == 0
    assert line(accounts).idle_hours == pytest.approx(30 / 3600)
    assert line(accounts).unknown_hours == pytest.approx(30 / 3600)


def test_shares_divide_the_energy_of_their_gpu(accounts):
    report(accounts, a_0=Reading(power_watts=300.0))
    for name, percent in (("small", 20), ("large", 60)):
        devices = part("a", 0, percent=percent)
        accounts.show("pods", bound_pod(name, devices=devices, bound=30))
    for _ in range(2):
        accounts.look()
    by_job = {each.job: each.amounts.joules for each in accounts.lines(Group.JOB)}
    assert by_job == {"Pod/small": pytest.approx(4500), "Pod/large": pytest.approx(13_500)}


def test_time_in_which_the_process_was_stopped_is_not_measured(accounts):
    report(accounts, a_0=Reading(busy_percent=100.0))
    accounts.show("pods", bound_pod("one", bound=30))
    accounts.look()
    accounts.look(3000)
    accounts.look()
    assert line(accounts).used_hours == pytest.approx(60 / 3600)


def test_implausible_readings_are_limited(accounts):
    report(accounts, a_0=Reading(busy_percent=900.0, power_watts=-5.0))
    accounts.show("pods", bound_pod("one", bound=30))
    accounts.look()
    assert line(accounts).used_hours == pytest.approx(30 / 3600)
    assert line(accounts).energy_kwh == 0


def test_unheld_gpus_are_counted_by_model(accounts):
    report(accounts, b_3=Reading(power_watts=100.0))
    accounts.show("pods", bound_pod("one", devices=whole("a", 0, 1), bound=0))
    accounts.show("pods", bound_pod("half", devices=part("a", 2, percent=50), bound=0))
    accounts.look()
    (((_, model), found),) = unheld(accounts).items()
    assert model == "NVIDIA H100 80GB HBM3"
    assert (found.usable, found.unusable) == (5500 * 30, 0)
    assert (found.metered, found.joules) == (1000 * 30, 3000)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("gpus", gpu_node("b", failed=(0, 1, 2, 3))),
        ("gpus", gpu_node("b", maintenance=[{"reason": "fans"}])),
        ("nodes", node("b", ready=False)),
        ("nodes", node("b", cordoned=True)),
    ],
)
def test_unusable_gpus_are_counted_separately(accounts, kind, item):
    accounts.show(kind, item)
    report(accounts)
    accounts.look()
    ((found),) = unheld(accounts).values()
    assert (found.usable, found.unusable) == (4000 * 30, 4000 * 30)


def test_a_held_gpu_in_maintenance_is_not_counted_as_unheld(accounts):
    accounts.show("gpus", gpu_node("a", maintenance=[{"reason": "fans"}]))
    report(accounts)
    accounts.show("pods", bound_pod("one", bound=30))
    accounts.look()
    assert accounts.seconds() == {"Pod/one": 30}
    (found,) = unheld(accounts).values()
    assert (found.usable, found.unusable) == (4000 * 30, 3000 * 30)


def test_unheld_gpus_of_an_observed_node_are_counted_by_number(accounts):
    accounts.show("nodes", observed_node("c", gpus=4))
    accounts.show("gpus", gpu_node("c", gpus=4, mode="observed", resource=OBSERVED))
    report(accounts)
    asking = {OBSERVED: "3"}
    accounts.show("pods", bound_pod("theirs", on="c", devices=(), asking=asking, bound=30))
    accounts.look()
    (found,) = unheld(accounts).values()
    assert found.usable == (8 + 1) * 1000 * 30
