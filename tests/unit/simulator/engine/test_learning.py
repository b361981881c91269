# SPDX-License-Identifier: Apache-2.0
from simulator_builders import job

from gpupack_placement import DecisionError, RequestMix
from gpupack_placement.learner import FIRST_FORECAST_ARRIVALS
from gpupack_placement.policies.best_fit import BestFit
from gpupack_simulator.engine.learning import Learning


class Pupil(BestFit):
    """Keeps the forecast that it was given."""

    def __init__(self, forecast=None):
        self.forecast = forecast

    def informed(self, forecast):
        return Pupil(forecast)


class Dunce(BestFit):
    def informed(self, forecast):
        raise DecisionError("no prices")


def teach(learning, jobs):
    for number in range(jobs):
        learning.arrived(job(f"job-{number}", 1 + number % 2))


def test_a_policy_gets_the_learned_mix_after_enough_arrivals():
    learning = Learning(Pupil())
    teach(learning, FIRST_FORECAST_ARRIVALS)
    demands = learning.policy.forecast.mix.demands
    ones = (FIRST_FORECAST_ARRIVALS + 1) // 2 / FIRST_FORECAST_ARRIVALS
    assert {demand.request.gpus: demand.weight for demand in demands} == {1: ones, 2: 1 - ones}


def test_a_policy_gets_no_mix_before_enough_arrivals():
    learning = Learning(Pupil())
    teach(learning, FIRST_FORECAST_ARRIVALS - 1)
    assert learning.policy.forecast is None


def test_every_worker_of_a_gang_counts():
    learning = Learning(Pupil())
    learning.arrived(job("gang", 1, workers=FIRST_FORECAST_ARRIVALS))
    assert learning.policy.forecast is not None


def test_a_policy_learns_whether_anything_leaves():
    learning = Learning(Pupil())
    for number in range(FIRST_FORECAST_ARRIVALS // 5):
        learning.departed(job(f"gone-{number}"))
    teach(learning, FIRST_FORECAST_ARRIVALS)
    assert learning.policy.forecast.churn == 0.2


def test_a_known_mix_is_used_from_the_start_and_stays():
    known = RequestMix.of([(job("x", 8).request, 1.0)])
    learning = Learning(Pupil(), known)
    assert learning.policy.forecast.mix == known
    teach(learning, FIRST_FORECAST_ARRIVALS)
    assert learning.policy.forecast.mix == known


def test_a_policy_that_cannot_be_informed_goes_on_as_it_is_and_that_is_said(caplog):
    learning = Learning(Dunce())
    teach(learning, FIRST_FORECAST_ARRIVALS)
    assert isinstance(learning.policy, Dunce)
    assert caplog.messages == ["policy best-fit goes on with what it knew: no prices"]
