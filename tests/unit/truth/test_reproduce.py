# SPDX-License-Identifier: Apache-2.0
import pytest
from reproduce import Figure, compared, published

CSV = """workload,policy,alloc_at_90,alloc_at_100,alloc_at_130,seeds
default,Random,85.02,86.30,87.47,10
default,BestFit,90.00,92.88,93.09,10
default,FGD,90.00,95.23,95.39,10
cpu100,FGD,1.00,2.00,3.00,10
"""


def runs(*percents):
    return {
        str(seed): {"allocation_percent_at_100": each, "allocation_percent_at_130": each + 1}
        for seed, each in enumerate(percents)
    }


def test_the_mean_over_the_seeds_is_compared_with_what_was_published():
    results = {"fgd": runs(95.0, 95.2), "best-fit": runs(93.0, 93.2)}
    assert compared(results, published(CSV)) == [
        Figure("best-fit", 100, 92.88, pytest.approx(93.1)),
        Figure("best-fit", 130, 93.09, pytest.approx(94.1)),
        Figure("fgd", 100, 95.23, pytest.approx(95.1)),
        Figure("fgd", 130, 95.39, pytest.approx(96.1)),
    ]


@pytest.mark.parametrize(("found", "verdict"), [(95.38, True), (95.08, True), (95.39, False)])
def test_a_figure_is_reproduced_within_fifteen_hundredths_of_a_point(found, verdict):
    assert Figure("fgd", 100, 95.23, found).is_reproduced is verdict
