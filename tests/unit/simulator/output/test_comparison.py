# SPDX-License-Identifier: Apache-2.0
"""Policies side by side, and the verdict."""

import math
import statistics

import pytest
from run_builders import done, run, sample

from gpupack_simulator.output import comparison
from gpupack_simulator.output.comparison import Cell, confidence_interval, difference
from gpupack_simulator.output.digest import digest
from gpupack_simulator.output.verdict import verdict
from gpupack_simulator.record import TimeUnit


def filled(policy, *percents):
    """The published experiment: one run a seed, with so much allocated in the end."""
    return [
        digest(
            run(
                policy=policy,
                seed=seed,
                time_unit=TimeUnit.ARRIVAL,
                samples=(sample(0, 0), sample(1, round(40 * percent), arrived=4000)),
                ended=1.0,
            )
        )
        for seed, percent in enumerate(percents)
    ]


def waited(policy, *waits, allocated=20_000.0):
    return [
        digest(
            run(
                policy=policy,
                seed=seed,
                jobs=(done("a", start=wait, duration=1),),
                samples=(sample(0, 0, queued=1), sample(wait, 1000)),
                allocated_milli_time=allocated,
            )
        )
        for seed, wait in enumerate(waits)
    ]


def cells(table, title):
    column = [metric.title for metric in table.metrics].index(title)
    return {policy: row[column] for policy, row in table.rows.items()}


def test_a_cell_is_mean_and_standard_deviation_over_seeds():
    found = cells(comparison.overview(filled("fgd", 94, 96)), "allocated at 100% demand")["fgd"]
    assert found.text == "95.00 ± 1.41"


def test_one_seed_has_no_spread():
    assert (
        cells(comparison.overview(filled("fgd", 94)), "allocated at 100% demand")["fgd"].text
        == "94.00"
    )


def test_columns_that_no_run_tells_are_left_out():
    titles = [m.title for m in comparison.overview(filled("fgd", 94)).metrics]
    assert titles == ["allocated at 100% demand", "allocated at the end"]


def test_the_best_of_a_column_is_marked():
    table = comparison.overview(filled("fgd", 95) + filled("best-fit", 93))
    found = cells(table, "allocated at 100% demand")
    assert (found["fgd"].best, found["best-fit"].best) == (True, False)


def test_of_waits_the_shorter_is_better():
    found = cells(comparison.waits(waited("fgd", 1.0) + waited("best-fit", 2.0)), "1 GPU")
    assert (found["fgd"].best, found["best-fit"].best) == (True, False)


def test_no_policy_is_best_if_all_are_equal():
    table = comparison.overview(filled("fgd", 95) + filled("best-fit", 95))
    assert not any(cell.best for row in table.rows.values() for cell in row)


def test_a_difference_is_taken_seed_by_seed():
    """Each seed is one point better, however far apart the seeds are."""
    found = difference(Cell({0: 91.0, 1: 96.0}, 2), Cell({0: 90.0, 1: 95.0}, 2))
    assert (found.mean, found.noise, found.is_significant) == (1, 0, True)


def test_the_noise_of_a_difference_is_its_confidence_interval():
    found = difference(Cell({0: 1.0, 1: 3.0}, 2), Cell({0: 0.0, 1: 0.0}, 2))
    assert found.mean == 2
    assert found.noise == pytest.approx(12.7062, rel=1e-5)
    assert not found.is_significant


@pytest.mark.parametrize(("seeds", "quantile"), [(5, 2.77645), (16, 2.13145), (30, 2.04523)])
def test_the_interval_is_students_whatever_the_number_of_seeds(seeds, quantile):
    """Quantiles of printed tables; those of the normal distribution would be 1.96."""
    values = [float(seed % 2) for seed in range(seeds)]
    error = statistics.stdev(values) / math.sqrt(seeds)
    assert confidence_interval(values) == pytest.approx(quantile * error, rel=1e-5)


def test_without_a_common_seed_nothing_can_be_compared():
    assert difference(Cell({0: 1.0}, 2), Cell({1: 1.0}, 2)) is None


def test_the_verdict_names_the_best_and_how_far_it_is_ahead():
    digests = filled("best-fit", 93, 93.2) + filled("fgd", 95, 95.2) + filled("random", 86, 86)
    assert verdict(digests) == (
        "fgd did best: 95.10% of all GPU capacity allocated at 100% demand, 2.00 points ahead of "
        "best-fit, more than the noise (0.00 over 2 seeds); random came last with 86.00%."
    )


def test_the_verdict_says_that_a_lead_is_within_the_noise():
    digests = filled("best-fit", 95, 93) + filled("fgd", 94, 95)
    assert verdict(digests) == (
        "fgd did best (94.50% of all GPU capacity allocated at 100% demand), but 0.50 points ahead "
        "of best-fit is within the noise (19.06 over 2 seeds)."
    )


def test_the_verdict_says_that_one_seed_is_no_proof():
    digests = filled("best-fit", 95) + filled("fgd", 94)
    assert "one seed says nothing of the noise" in verdict(digests)


def test_the_verdict_compares_waits_if_jobs_wait():
    found = verdict(waited("fgd", 1.0, 1.0) + waited("best-fit", 3.0, 3.0))
    assert found.startswith(
        "fgd did best: a mean wait of 1.000 steps, 2.000 steps ahead of best-fit"
    )


def test_the_verdict_says_that_nothing_differs():
    found = verdict(filled("fgd", 95, 94) + filled("best-fit", 95, 94))
    assert found == (
        "fgd and best-fit did equally well (94.50% of all GPU capacity allocated at 100% demand)."
    )


def test_fragmentation_alone_decides_nothing():
    runs = (
        run(
            policy=policy,
            samples=(sample(0, 2000, fragmented=milli),),
            allocated_milli_time=20_000.0,
        )
        for policy, milli in (("fgd", 100), ("best-fit", 200))
    )
    found = verdict([digest(one) for one in runs])
    assert found == "fgd and best-fit did equally well (50.00% of all GPU capacity allocated)."


def test_the_verdict_on_one_policy_is_its_figure():
    assert verdict(filled("fgd", 95)) == (
        "fgd is the only policy that was run: 95.00% of all GPU capacity allocated at 100% demand."
    )


def test_the_verdict_on_nothing_says_that_nothing_was_run():
    assert verdict([]) == "Nothing was run, so there is nothing to compare."
