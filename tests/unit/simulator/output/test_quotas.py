# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from simulator_builders import job, node, run

from gpupack_queue import Quotas
from gpupack_simulator.output.quotas import SHOWN, change, change_json, tables, verdict


def changed(*jobs):
    today = run([node("n")], jobs)
    faster = [replace(one, duration=one.duration / 2) for one in jobs]
    return change(today, run([node("n")], faster), Quotas(), capacity=4000)


def test_only_tenants_with_the_largest_changes_of_waits_are_shown():
    found = changed(
        *(replace(job(f"j{n}", 4, lasts=2), tenant=f"t{n:02}") for n in range(SHOWN + 5))
    )
    by_tenant = tables(found)[0]
    assert list(by_tenant.rows) == [f"t{n:02}" for n in range(5, SHOWN + 5)]
    assert by_tenant.title == "Waits by tenant; 5 tenants whose waits changed less are left out"
    assert len(change_json(found, {})["today"]["tenants"]) == SHOWN + 5


def test_jobs_without_a_tenant_have_a_row():
    assert list(tables(changed(job("a", lasts=1)))[0].rows) == ["(none)"]


def test_without_gpu_requests_there_is_no_fairness():
    found = changed(job("cpu", 0, lasts=3))
    assert change_json(found, {})["today"]["fairness_jain_mean"] is None
    assert "jobs wait 0.0 steps on average instead of 0.0 steps" in verdict(found)
