# SPDX-License-Identifier: Apache-2.0
from gpupack_agent.inventory.base import Findings
from gpupack_agent.roster import Roster, merge, remembered


def test_a_gpu_that_disappears_stays_as_failed(build):
    first, second = build.device(0), build.device(1)
    merged = merge([first, second], [second])
    assert [each.health for each in merged] == ["Failed", "Healthy"]
    assert "no longer finds" in merged[0].cause


def test_a_gpu_that_comes_back_is_what_the_scan_says(build):
    gone = merge([build.device(0)], [])
    assert merge(gone, [build.device(0)]) == (build.device(0),)


def test_only_real_gpus_are_remembered_over_a_restart(build):
    real, simulated = build.device(0), build.device(1, simulated=True)
    assert remembered([real, simulated]) == (real,)


def test_a_new_agent_misses_the_gpu_that_the_last_one_recorded(build):
    roster = Roster()
    roster.update(Findings(devices=(build.device(1),)))
    roster.recall([build.device(0), build.device(1)])
    assert [each.health for each in roster.findings.devices] == ["Failed", "Healthy"]


def test_a_gone_gpu_is_forgotten_when_it_is_asked_for(build):
    roster = Roster()
    roster.update(Findings(devices=(build.device(0), build.device(1))))
    roster.update(Findings(devices=(build.device(1),)))
    roster.forget_gone()
    assert roster.findings.devices == (build.device(1),)


async def test_only_a_real_change_is_announced(build):
    roster = Roster()
    roster.update(Findings(devices=(build.device(0),)))
    change = roster.next_change
    roster.update(Findings(devices=(build.device(0),)))
    assert not change.is_set()
    roster.update(Findings(devices=(build.device(0, health="Degraded"),)))
    assert change.is_set()


def test_slices_of_a_gpu_that_is_cut_anew_do_not_pile_up(build):
    roster = Roster()
    for number in range(3):
        slice_ = build.device(number, mig_parent="GPU-9")
        roster.update(Findings(devices=(slice_,)))
    assert roster.findings.devices == (slice_,)
