# SPDX-License-Identifier: Apache-2.0
import itertools
import statistics
from dataclasses import replace

from gpupack_workloads.inference_load.arrivals import LONGEST, Traffic, arrivals

TRAFFIC = Traffic(rate_per_s=50, seconds=100, prompt_tokens=40, output_tokens=20, seed=3)


def drawn(traffic=TRAFFIC, *, max_length=10_000):
    return arrivals(traffic, vocabulary=50, max_length=max_length)


def test_one_seed_gives_one_load_and_another_seed_another():
    assert drawn() == drawn()
    assert drawn() != drawn(replace(TRAFFIC, seed=4))


def test_a_longer_load_begins_as_the_shorter_one():
    short = drawn(replace(TRAFFIC, seconds=10))
    assert drawn()[: len(short)] == short


def test_gaps_are_exponential_of_the_rates_mean():
    found = [each.due for each in drawn()]
    gaps = [after - before for before, after in itertools.pairwise(found)]
    assert found == sorted(found)
    assert found[-1] < 100
    # 5,000 gaps: their mean and deviation, which are equal, are known within 2 to 3%.
    assert abs(statistics.mean(gaps) * 50 - 1) < 0.1
    assert abs(statistics.stdev(gaps) * 50 - 1) < 0.15


def test_lengths_have_their_mean_and_their_bounds():
    found = drawn()
    prompts = [len(each.prompt) for each in found]
    outputs = [each.output_tokens for each in found]
    assert abs(statistics.mean(prompts) / 40 - 1) < 0.1
    assert abs(statistics.mean(outputs) / 20 - 1) < 0.1
    assert min(prompts + outputs) >= 1
    assert max(prompts) <= LONGEST * 40
    assert statistics.stdev(prompts) > 10
    assert {word for each in found for word in each.prompt} == set(range(50))


def test_no_sequence_is_longer_than_the_server_takes():
    found = drawn(max_length=30)
    longest = max(len(each.prompt) + each.output_tokens for each in found)
    assert longest == 30
    assert min(each.output_tokens for each in found) >= 1
