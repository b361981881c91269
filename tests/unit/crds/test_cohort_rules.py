# SPDX-License-Identifier: Apache-2.0
"""Rules that namespaces have from the cohorts above them."""

import pytest

from gpupack_crds.cohort_rules import MAX_LEVELS, run_limit
from gpupack_crds.gpucohort import GpuCohortSpec
from gpupack_crds.gpujob_status import RunLimit


def limit(cohort, **cohorts):
    """Return the limit below a cohort; `cohorts`: parent and maxRunSeconds by name."""
    specs = {
        name: GpuCohortSpec(parent=parent, max_run_seconds=seconds)
        for name, (parent, seconds) in cohorts.items()
    }
    return run_limit(cohort, specs.get)


@pytest.mark.parametrize(
    ("cohort", "expected"),
    [
        ("vision", RunLimit(seconds=60, cohort="vision")),
        ("speech", RunLimit(seconds=600, cohort="research")),
        ("web", RunLimit(seconds=900, cohort="cluster")),
        ("missing", RunLimit(seconds=900, cohort="cluster")),
        (None, RunLimit(seconds=900, cohort="cluster")),
    ],
)
def test_the_nearest_cohort_with_a_limit_counts_even_if_it_is_longer(cohort, expected):
    cohorts = {
        "research": (None, 600),
        "vision": ("research", 60),
        "speech": ("research", None),
        "web": (None, None),
        "cluster": (None, 900),
    }
    assert limit(cohort, **cohorts) == expected


def test_without_a_limit_there_is_none():
    assert limit("web", web=(None, None)) is None


def test_cohorts_in_a_ring_end_at_the_clusters_own_limit():
    ring = {"a": ("b", None), "b": ("a", None)}
    assert limit("a", **ring) is None
    assert limit("a", **ring, cluster=(None, 5)) == RunLimit(seconds=5, cohort="cluster")


def test_a_cohort_at_the_maximum_depth_still_has_the_rule_of_the_highest_one():
    chain = {f"c{n}": (f"c{n + 1}", None) for n in range(MAX_LEVELS - 1)}
    top = {f"c{MAX_LEVELS - 1}": (None, 7)}
    assert limit("c0", **chain, **top) == RunLimit(seconds=7, cohort=f"c{MAX_LEVELS - 1}")
