# SPDX-License-Identifier: Apache-2.0
"""Every rule of the table, with facts of an H200 and the change to which the rule applies."""

import dataclasses
import datetime as dt
import itertools

import pytest

from gpupack_agent.grading.catalogue import CATALOGUE, CLASS_GRADES, XidClass
from gpupack_agent.grading.grade import Finding, worst_grade
from gpupack_agent.grading.hysteresis import apply_hysteresis
from gpupack_agent.grading.rules import RECOVERY_ACTIONS, RULES, grade_gpu
from gpupack_agent.inventory.facts import Board, Errors, GpuFacts, Links, Load

WELL = GpuFacts(
    uuid="GPU-0",
    index=0,
    name="NVIDIA H200",
    board=Board(max_pcie_width=16),
    load=Load(throttled_by=frozenset({"SwPowerCap"})),
    errors=Errors(recovery_action=0, remap_failed=False, remap_pending=False),
    links=Links(pcie_width=16, nvlinks=(True,) * 18),
)

HOLDS = {
    "RowRemapFailed": {"errors": Errors(remap_failed=True, remap_pending=True)},
    "RowRemapPending": {"errors": Errors(remap_pending=True)},
    "EccUncorrected": {"errors": Errors(ecc_uncorrected_volatile=2)},
    "NvlinkDown": {"links": Links(nvlinks=(*(True,) * 17, False))},
    "PcieLinkNarrow": {"links": Links(pcie_width=8)},
    "ThrottledHwThermalSlowdown": {"load": Load(throttled_by=frozenset({"HwThermalSlowdown"}))},
    "ThrottledSwThermalSlowdown": {"load": Load(throttled_by=frozenset({"SwThermalSlowdown"}))},
    "ThrottledHwPowerBrakeSlowdown": {
        "load": Load(throttled_by=frozenset({"HwPowerBrakeSlowdown"}))
    },
}


def test_a_busy_gpu_and_a_gpu_without_facts_are_healthy():
    assert grade_gpu(WELL, ()).health == "Healthy"
    assert grade_gpu(GpuFacts(uuid="a", index=0, name="b"), ()).health == "Healthy"


def test_every_rule_of_the_table_is_tried_here():
    assert set(HOLDS) == {rule.name for rule in RULES}
    assert all(rule.source.startswith("https://docs.nvidia.com/") for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_applies_gives_its_name_its_grade_and_an_action(rule):
    grade = grade_gpu(dataclasses.replace(WELL, **HOLDS[rule.name]), ())
    assert (grade.health, grade.causes) == (rule.health, (rule.name,))
    assert len(grade.cause) > 20


@pytest.mark.parametrize("action", RECOVERY_ACTIONS)
def test_the_drivers_recovery_action_counts(action):
    grade = grade_gpu(dataclasses.replace(WELL, errors=Errors(recovery_action=action)), ())
    assert (grade.health, grade.cause) == RECOVERY_ACTIONS[action]
    assert grade.causes == ("RecoveryAction",)


def test_an_unknown_recovery_action_cordons_the_gpu():
    grade = grade_gpu(dataclasses.replace(WELL, errors=Errors(recovery_action=99)), ())
    assert (grade.health, grade.cause) == ("Cordoned", "the driver requests unknown action 99")


def test_links_that_are_all_down_lead_nowhere_and_say_nothing():
    facts = dataclasses.replace(WELL, links=Links(nvlinks=(False,) * 18))
    assert grade_gpu(facts, ()).health == "Healthy"


@pytest.mark.parametrize("kind", XidClass)
def test_every_class_of_xids_has_its_grade(kind):
    numbers = [each.number for each in CATALOGUE.values() if each.kind is kind]
    assert numbers
    for number in numbers:
        grade = grade_gpu(WELL, {number})
        assert grade.health == CLASS_GRADES[kind][0]
        assert grade.xids == ((number,) if grade.health != "Healthy" else ())
        if grade.health != "Healthy":
            assert grade.cause.startswith(f"XID {number}: ")
            assert grade.causes == (kind.value,)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_xids_that_a_program_can_raise_do_not_affect_a_gpu(xid):
    assert grade_gpu(WELL, {xid}).health == "Healthy"


@pytest.mark.parametrize("xid", [0, 1, 7, 138, 4711])
def test_an_xid_that_the_catalogue_does_not_list_has_no_effect(xid):
    assert grade_gpu(WELL, {xid}).health == "Healthy"


def test_the_worst_counts_and_all_of_them_are_named():
    facts = dataclasses.replace(WELL, **HOLDS["ThrottledHwThermalSlowdown"])
    grade = grade_gpu(facts, {94, 79, 13})
    assert (grade.health, grade.cause[:7]) == ("Failed", "XID 79:")
    assert grade.causes == ("XidRestartHost", "XidContainedError", "ThrottledHwThermalSlowdown")


def test_the_first_of_equal_findings_is_the_cause():
    first, second = (Finding(rule, "Cordoned", rule) for rule in ("A", "B"))
    assert worst_grade([first, second]).cause == "A"


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
HOLD = 60.0


def after(seconds):
    return NOON + dt.timedelta(seconds=seconds)


def test_a_gpu_gets_worse_at_once(build):
    worse = build.device(0, health="Cordoned")
    before = build.device(0, health="Degraded")
    assert apply_hysteresis(worse, before, now=NOON, hold_seconds=HOLD) == worse


def test_it_gets_better_only_after_it_has_been_so_for_a_while(build):
    ill = build.device(0, health="Failed", cause="hot", causes=("A",))
    well = build.device(0)
    first = apply_hysteresis(well, ill, now=NOON, hold_seconds=HOLD)
    assert (first.health, first.cause, first.causes) == ("Failed", "hot", ("A",))
    assert first.recovering_since == "2026-01-01T12:00:00Z"
    later = apply_hysteresis(well, first, now=after(HOLD - 1), hold_seconds=HOLD)
    assert later == first
    assert apply_hysteresis(well, later, now=after(HOLD), hold_seconds=HOLD) == well


def test_a_gpu_that_comes_and_goes_within_that_time_changes_its_grade_once(build):
    ill, well = build.device(0, health="Failed", cause="gone"), build.device(0)
    shown, grades = well, []
    for second in range(0, 600, 20):
        seen = ill if second // 20 % 2 else well
        shown = apply_hysteresis(seen, shown, now=after(second), hold_seconds=HOLD)
        grades.append(shown.health)
    changes = sum(one != other for one, other in itertools.pairwise(grades))
    assert changes == 1


def test_an_invalid_time_starts_the_hysteresis_again(build):
    ill = build.device(0, health="Failed", recovering_since="soon")
    shown = apply_hysteresis(build.device(0), ill, now=NOON, hold_seconds=HOLD)
    assert shown.recovering_since == "2026-01-01T12:00:00Z"
