# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from simulator_builders import job, node, run

from gpupack_queue import Limit, PreemptionRules, Quota, Quotas, Rules
from gpupack_simulator.disciplines import DISCIPLINES
from gpupack_simulator.output import fairness as module
from gpupack_simulator.output.fairness import Fairness, fairness


def of(tenant, *jobs):
    return [replace(one, tenant=tenant) for one in jobs]


def measured(course, quotas=None, *, gpus=4):
    return fairness(course, quotas or Quotas(), capacity=1000 * gpus)


def test_the_index_is_1_where_all_got_the_same_part_and_1_by_n_where_one_got_all():
    right = np.array([[2.0, 2.0, 4.0], [2.0, 2.0, 4.0], [2.0, 2.0, 0.0], [2.0, 0.0, 0.0]])
    had = np.array([[1.0, 1.0, 2.0], [6.0, 0.0, 0.0], [2.0, 1.0, 1.0], [2.0, 0.0, 0.0]])
    found = Fairness(("a", "b", "c"), np.arange(5.0), had, right).index
    assert found[:3] == pytest.approx([1, 1 / 3, 1.5**2 / (2 * 1.25)])
    assert np.isnan(found[3])


def test_a_tenant_that_has_everything_while_another_waits_halves_the_index():
    jobs = of("a", job("all", 4, lasts=10)) + of("b", job("waits", 4, lasts=10))
    found = measured(run([node("n")], jobs))
    assert found.index[:30] == pytest.approx([0.5] * 30)
    assert np.isnan(found.index[31:]).all()
    assert found.received.sum(axis=0) == pytest.approx([40_000, 40_000])
    assert found.entitled.sum(axis=0) == pytest.approx([20_000, 60_000])


def test_halves_of_the_gpus_are_fair():
    jobs = of("a", job("x", 2, lasts=10)) + of("b", job("y", 2, lasts=10))
    assert measured(run([node("n")], jobs)).mean == pytest.approx(1)


def test_quotas_say_what_is_fair():
    quotas = Quotas((Quota("a", {"": Limit(3000)}), Quota("b", weight=0.0)))
    jobs = of("a", *(job(f"a{n}", 1, lasts=10) for n in range(3)))
    jobs += of("b", *(job(f"b{n}", 1, lasts=10) for n in range(3)))
    course = run([node("n")], jobs, until=9)
    assert measured(course, quotas).mean == pytest.approx(1)
    assert measured(course).mean == pytest.approx(0.8)


def test_attempts_that_were_cut_short_count_as_had():
    rules = replace(
        DISCIPLINES["fair-share"],
        rules=Rules(preemption=PreemptionRules(min_runtime_seconds=0, retry_seconds=0)),
    )
    quotas = Quotas((Quota("owner", {"": Limit(4000)}),))
    jobs = of("guest", job("g", 4, lasts=100)) + of("owner", job("o", 4, at=30, lasts=10))
    course = run([node("n")], jobs, queue=rules, quotas=quotas)
    assert course.jobs[0].preemptions == 1
    had = dict(zip(("guest", "owner"), measured(course).received.sum(axis=0), strict=True))
    assert had == pytest.approx({"guest": 4000 * 130, "owner": 4000 * 10})


def test_a_long_run_is_averaged_over_cells_with_nearly_the_same_result(monkeypatch):
    jobs = [job(f"{t}{n}", 1 + n % 3, at=n / 3, lasts=4) for n in range(300) for t in "ab"]
    jobs = [replace(one, tenant=one.id[0]) for one in jobs]
    course = run([node("n")], jobs)
    exact = measured(course)
    monkeypatch.setattr(module, "CELLS", 100)
    coarse = measured(course)
    assert coarse.received.sum() == pytest.approx(exact.received.sum())
    assert coarse.mean == pytest.approx(exact.mean, abs=0.02)


def test_a_run_without_gpu_requests_has_no_fairness():
    assert measured(run([node("n")], [job("cpu", 0, lasts=3)])).mean is None
