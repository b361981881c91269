# SPDX-License-Identifier: Apache-2.0
"""Users of a tenant take turns in simulated time."""

from dataclasses import replace

import pytest
from simulator_builders import job, node, run, starts

from gpupack_queue import Quota, Quotas


def of(user, *jobs):
    return [replace(one, tenant="lab", user=user) for one in jobs]


@pytest.mark.parametrize(("by_user", "started"), [(True, 10), (False, 60)])
def test_one_job_of_a_user_does_not_wait_for_all_of_another(by_user, started):
    jobs = of("ann", *(job(f"a{n}", lasts=10) for n in range(12)))
    jobs += of("bob", job("b", at=1, lasts=10))
    quotas = Quotas((Quota("lab", by_user=by_user),))
    course = run([node("a", 2)], jobs, discipline="fair-share", quotas=quotas)
    assert starts(course)["b"] == started
