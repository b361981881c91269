# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.grading import catalogue
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import Errors, GpuFacts, Load
from gpupack_agent.known_devices import (
    STALE_SECONDS,
    KnownDevices,
    cordon_unseen,
    merge,
    real_devices,
    with_since,
)
from gpupack_crds.gpunode import MAX_XIDS, GpuNodeStatus


def test_a_gpu_that_disappears_stays_as_failed(build):
    first, second = build.device(0), build.device(1)
    merged = merge([first, second], [second])
    assert [each.health for each in merged] == ["Failed", "Healthy"]
    assert "no longer lists" in merged[0].cause


def test_a_gpu_that_reappears_has_the_health_of_the_scan(build):
    gone = merge([build.device(0)], [])
    assert merge(gone, [build.device(0)]) == (build.device(0),)


def test_only_real_gpus_are_remembered_over_a_restart(build):
    real, simulated = build.device(0), build.device(1, simulated=True)
    assert real_devices([real, simulated]) == (real,)


def test_a_new_agent_misses_the_gpu_that_the_last_one_recorded(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(1),)))
    known_devices.restore(GpuNodeStatus(devices=(build.device(0), build.device(1))))
    assert [each.health for each in known_devices.findings.devices] == ["Failed", "Healthy"]


def test_forget_drops_gpus_that_disappeared(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0), build.device(1))))
    known_devices.update(Findings(devices=(build.device(1),)))
    known_devices.forget()
    assert known_devices.findings.devices == (build.device(1),)


async def test_only_a_real_change_is_announced(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),)))
    change = known_devices.next_change
    known_devices.update(Findings(devices=(build.device(0),)))
    assert not change.is_set()
    known_devices.update(Findings(devices=(build.device(0, health="Degraded"),)))
    assert change.is_set()


def test_former_slices_of_a_partitioned_gpu_are_forgotten(build):
    known_devices = KnownDevices()
    for number in range(3):
        slice_ = build.device(number, mig_parent="GPU-9")
        known_devices.update(Findings(devices=(slice_,)))
    assert known_devices.findings.devices == (slice_,)


def recorded(build, **fields):
    """A GPUNode that holds a memory error against its GPU."""
    device = build.device(0, health="Failed", cause="XID 95: bad", xids=(95,))
    return GpuNodeStatus(devices=(device,), boot_id="boot-1", **fields)


@pytest.fixture
def restarted(build):
    """A new agent, to which the driver does not report earlier errors."""
    known = KnownDevices(boot_id="boot-1")
    known.update(Findings(devices=(build.device(0),)))
    return known


def test_a_failed_gpu_is_still_failed_after_its_agent_restarted(restarted, build):
    restarted.restore(recorded(build))
    for _ in range(2):
        (device,) = restarted.findings.devices
        assert (device.health, device.xids) == ("Failed", (95,))
        assert device.cause.startswith("XID 95: ")
        restarted.update(Findings(devices=(build.device(0),)))


def test_errors_from_before_the_last_boot_do_not_count(build):
    booted = KnownDevices(boot_id="boot-2")
    booted.update(Findings(devices=(build.device(0),)))
    booted.restore(recorded(build))
    assert booted.findings.devices == (build.device(0),)


def test_without_a_boot_id_past_errors_still_count(build):
    unknown = KnownDevices(boot_id="")
    unknown.update(Findings(devices=(build.device(0),)))
    unknown.restore(recorded(build))
    assert unknown.findings.devices[0].health == "Failed"


def test_deleting_the_gpunode_clears_past_errors(build):
    forgotten = []
    known = KnownDevices(boot_id="boot-1", on_forget=lambda: forgotten.append("inventory"))
    known.update(Findings(devices=(build.device(0),)))
    known.restore(recorded(build))
    known.forget()
    known.update(Findings(devices=(build.device(0),)))
    assert known.findings.devices == (build.device(0),)
    assert forgotten == ["inventory"]


def test_a_new_error_is_added_to_those_of_before(restarted, build):
    restarted.restore(recorded(build))
    degraded = build.device(0, health="Degraded")
    restarted.update(Findings(devices=(degraded,), xids={degraded.uuid: (94,)}))
    (device,) = restarted.findings.devices
    assert (device.health, device.xids) == ("Failed", (94, 95))


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_the_start_of_bad_health_stays_until_the_health_changes(build):
    failed = build.device(0, health="Failed", cause="a")
    (first,) = with_since({}, [failed], now=NOON)
    assert first.since == "2026-01-01T12:00:00Z"
    (same,) = with_since({first.uuid: first}, [failed], now=NOON.replace(hour=13))
    assert same.since == first.since
    worse = build.device(0, health="Failed", cause="b")
    (changed,) = with_since({first.uuid: first}, [worse], now=NOON.replace(hour=13))
    assert changed.since == "2026-01-01T13:00:00Z"
    assert with_since({first.uuid: first}, [build.device(0)], now=NOON)[0].since is None


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_gpus_without_a_scan_for_a_while_get_no_new_work(build):
    well, failed = build.device(0), build.device(1, health="Failed", cause="broken")
    since = NOW - dt.timedelta(seconds=STALE_SECONDS)
    first, second = cordon_unseen([well, failed], since, now=NOW, reason="the driver hangs")
    assert first.health == "Cordoned"
    assert first.cause == "no successful scan since 2025-12-31T23:59:30Z: the driver hangs"
    assert second == failed


def test_one_scan_that_fails_changes_no_grade(build):
    since = NOW - dt.timedelta(seconds=STALE_SECONDS - 1)
    assert cordon_unseen([build.device(0)], since, now=NOW, reason="no answer") == (
        build.device(0),
    )


async def test_the_time_of_the_last_scan_is_shown_until_a_scan_succeeds(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),)))
    change = known_devices.next_change
    known_devices.scan_failed(InventoryUnavailable("the driver hangs"))
    since = known_devices.findings.stale_since
    assert (change.is_set(), since is not None) == (True, True)
    change = known_devices.next_change
    known_devices.scan_failed(InventoryUnavailable("the driver hangs"))
    assert (change.is_set(), known_devices.findings.stale_since) == (False, since)
    assert known_devices.findings.devices == (build.device(0),)
    known_devices.update(Findings(devices=(build.device(0),)))
    assert known_devices.findings.stale_since is None


def test_an_agent_that_starts_while_the_driver_hangs_keeps_the_recorded_gpus(build):
    known_devices = KnownDevices()
    known_devices.scan_failed(InventoryUnavailable("the driver hangs"))
    known_devices.restore(GpuNodeStatus(devices=(build.device(0),)))
    assert known_devices.findings.devices == (build.device(0),)
    assert known_devices.findings.stale_since is not None


def test_errors_outlive_the_process_that_received_them(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),), xids={build.device(0).uuid: (79,)}))
    known_devices.update(Findings(devices=(build.device(0),)))
    (device,) = known_devices.findings.devices
    assert (device.health, device.xids) == ("Failed", (79,))
    known_devices.forget()
    known_devices.update(Findings(devices=(build.device(0),)))
    assert known_devices.findings.devices == (build.device(0),)


def test_xids_that_programs_raise_are_not_shown(build):
    device = build.device(0)
    xids = tuple(number for number in range(200) if catalogue.finding(number) is None)
    assert len(xids) > MAX_XIDS
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(device,), xids={device.uuid: (*xids, 79)}))
    assert known_devices.findings.devices[0].xids == (79,)


def test_facts_and_xids_of_a_gpu_are_graded_together(build):
    device = build.device(0)
    facts = GpuFacts(uuid=device.uuid, index=0, name="H200", errors=Errors(remap_pending=True))
    known_devices = KnownDevices()
    found = Findings(devices=(device,), facts=(facts,), xids={device.uuid: (54, 94)})
    known_devices.update(found)
    (shown,) = known_devices.findings.devices
    assert shown.health == "Cordoned"
    assert shown.causes == ("RowRemapPending", "XidContainedError", "XidMechanical")
    assert shown.cause.startswith("a memory row is remapped")


def test_partitioning_a_gpu_does_not_clear_its_errors(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),), xids={build.device(0).uuid: (79,)}))
    whole = build.device(0).uuid
    known_devices.update(Findings(devices=(build.device(1, mig_parent=whole),)))
    (device,) = known_devices.findings.devices
    assert (device.health, device.xids) == ("Failed", (79,))


def test_a_new_agent_counts_recorded_errors_of_slices_against_the_present_slices(build):
    slice_ = build.device(1, mig_parent="GPU-9", health="Failed", cause="XID 79", xids=(79,))
    known_devices = KnownDevices(boot_id="boot-1")
    known_devices.update(Findings(devices=(build.device(2, mig_parent="GPU-9"),)))
    known_devices.restore(GpuNodeStatus(devices=(slice_,), boot_id="boot-1"))
    (device,) = known_devices.findings.devices
    assert (device.health, device.xids) == ("Failed", (79,))


def facts_at(celsius):
    return GpuFacts(uuid="GPU-0", index=0, name="H200", load=Load(temperature_celsius=celsius))


def temperatures(known_devices):
    return [facts.load.temperature_celsius for facts in known_devices.findings.facts]


async def test_figures_are_those_of_the_last_scan_also_where_no_gpu_changed(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),), facts=(facts_at(40),)))
    change = known_devices.next_change
    known_devices.update(Findings(devices=(build.device(0),), facts=(facts_at(70),)))
    assert temperatures(known_devices) == [70]
    assert not change.is_set()


def test_figures_of_a_hanging_driver_are_shown_for_a_while(build, monkeypatch):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0),), facts=(facts_at(40),)))
    known_devices.scan_failed(InventoryUnavailable("the driver hangs"))
    assert temperatures(known_devices) == [40]
    monkeypatch.setattr("gpupack_agent.known_devices.STALE_SECONDS", 0.0)
    known_devices.scan_failed(InventoryUnavailable("the driver hangs"))
    assert temperatures(known_devices) == []
    assert [device.health for device in known_devices.findings.devices] == ["Cordoned"]


def test_a_partly_recovered_gpu_does_not_become_healthy_at_the_first_better_scan(
    build, monkeypatch
):
    now = [dt.datetime.now(dt.UTC)]

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return now[0]

    monkeypatch.setattr("gpupack_agent.known_devices.dt.datetime", Clock)
    known_devices, grades = KnownDevices(hold_seconds=60), []
    seen = ["Failed", *["Degraded"] * 6, *["Healthy"] * 9]
    for health in seen:
        cause = "" if health == "Healthy" else health
        known_devices.update(Findings(devices=(build.device(0, health=health, cause=cause),)))
        grades.append(known_devices.findings.devices[0].health)
        now[0] += dt.timedelta(seconds=10)
    assert grades == [*["Failed"] * 7, *["Degraded"] * 6, *["Healthy"] * 3]
