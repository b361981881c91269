# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cost import (
    Amounts,
    Group,
    Key,
    Prices,
    Tariff,
    Tariffs,
    gpu_hours,
    statement,
    total,
)

TARIFFS = Tariffs.of([Tariff(0.0, "EUR", Prices({"H100": 3.0}))])
HOUR = 3_600_000.0


def entry(tenant="team", *, job="", cohort="", model="H100", hour=0, **amounts):
    return Key(hour, 0, tenant, cohort, job, model), Amounts(**({"allocated": HOUR} | amounts))


ENTRIES = [
    entry("b", job="x", cohort="c", model="H100"),
    entry("a", job="y", cohort="c", model="T4"),
    entry("a", job="x", cohort="d", model="H100", hour=3600),
]


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        (Group.NAMESPACE, [("a", "", "", 2.0), ("b", "c", "", 1.0)]),
        (Group.JOB, [("a", "d", "x", 1.0), ("a", "c", "y", 1.0), ("b", "c", "x", 1.0)]),
        (Group.COHORT, [("", "c", "", 2.0), ("", "d", "", 1.0)]),
        (Group.MODEL, [("", "", "", 2.0), ("", "", "", 1.0)]),
    ],
)
def test_lines_are_grouped_as_asked(by, lines):
    found = statement(ENTRIES, by, TARIFFS)
    shown = [(x.tenant, x.cohort, x.job, x.amounts.allocated_hours) for x in found]
    assert shown == lines


def test_a_part_without_a_price_leaves_the_cost_unknown():
    first, second = statement(ENTRIES, Group.NAMESPACE, TARIFFS)
    assert (first.cost, second.cost) == (None, 3.0)
    assert total([first, second]).cost is None
    assert total([second, second]).cost == 6.0


def test_nothing_costs_nothing():
    assert statement([], Group.MODEL, TARIFFS) == []
    assert total([]).cost == 0.0


def test_what_is_idle_is_measured_and_not_used():
    amounts = Amounts(allocated=HOUR, measured=HOUR / 2, used=HOUR / 8)
    assert (amounts.used_hours, amounts.idle_hours, amounts.unknown_hours) == (0.125, 0.375, 0.5)


def test_amounts_without_a_measurement_are_unknown():
    amounts = Amounts(allocated=HOUR)
    assert (amounts.used_hours, amounts.idle_hours, amounts.energy_kwh) == (None, None, None)
    assert amounts.unknown_hours == 1.0


def test_energy_is_reported_in_kilowatt_hours():
    assert Amounts(metered=1.0, joules=7.2e6).energy_kwh == 2.0
    assert gpu_hours(HOUR / 2) == 0.5
