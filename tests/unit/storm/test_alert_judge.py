# SPDX-License-Identifier: Apache-2.0
"""The judge of alerts finds what is missing and what is noise."""

import dataclasses

import pytest
import yaml
from alert_judge import Broken, Fired, Verdict, judge
from alert_rules import faster, waits_seconds

GPU = Broken("gpu", 100, 160, frozenset({"GpuFailed"}), frozenset({"KeptOut"}), 30)


def fired(name, first, last):
    return Fired(name, "node=a", first, last)


def test_an_expected_alert_is_right():
    assert judge([GPU], [fired("GpuFailed", 120, 170), fired("KeptOut", 130, 185)]) == Verdict(
        (), ()
    )


def test_an_alert_that_does_not_fire_in_time_is_missing():
    late = [fired("GpuFailed", 165, 170)]
    assert judge([GPU], []).silent == ("gpu: GpuFailed",)
    assert judge([GPU], late).silent == ("gpu: GpuFailed",)


@pytest.mark.parametrize(
    "alert",
    [
        fired("Other", 120, 130),
        fired("GpuFailed", 20, 30),
        fired("GpuFailed", 191, 195),
        fired("GpuFailed", 120, 400),
    ],
)
def test_another_alert_one_before_one_after_and_one_that_stays_are_noise(alert):
    (found,) = judge([GPU], [fired("GpuFailed", 120, 130), alert]).noise
    assert found.startswith(alert.name)


def test_an_alert_that_fires_on_for_one_break_after_the_other_is_right():
    again = dataclasses.replace(GPU, began=180, ended=240)
    assert judge([GPU, again], [fired("GpuFailed", 120, 265)]).noise == ()
    later = dataclasses.replace(GPU, began=200, ended=260)
    assert len(judge([GPU, later], [fired("GpuFailed", 120, 265)]).noise) == 1


def test_faster_rules_wait_less_with_the_same_expressions(tmp_path):
    path = faster(10, tmp_path)
    groups = yaml.safe_load(path.read_text())["groups"]
    rules = {rule.get("alert"): rule for group in groups for rule in group["rules"]}
    assert rules["GpupackAgentMissing"]["for"] == "30s"
    assert waits_seconds("GpupackAgentMissing") == 300
    assert "[60s]" in rules["GpupackDoubleHolderRefused"]["expr"]
    assert "> 90" in rules["GpupackLedgerStale"]["expr"]
