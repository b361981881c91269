# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_placement import (
    Demand,
    DemandForecast,
    DemandLearner,
    InvalidRequest,
    Request,
    RequestMix,
    Share,
    Toleration,
)
from gpupack_placement.learner import (
    FADE_ARRIVALS,
    FIRST_FORECAST_ARRIVALS,
    KINDS_AFTER_FADE,
    MAX_ARRIVALS_BETWEEN_FORECASTS,
)

ONE, TWO = Request(gpus=1), Request(gpus=2)


def taught(*requests):
    learner = DemandLearner()
    for request in requests:
        learner.record_arrival(request)
    return learner


def test_weights_are_the_shares_of_the_arrivals():
    mix = taught(ONE, TWO, ONE, ONE).take_forecast().mix
    assert mix == RequestMix((Demand(ONE, 0.75), Demand(TWO, 0.25)))


def test_what_only_the_owner_cares_about_makes_no_kind_of_its_own():
    tolerant = Request(gpus=1, tolerations=(Toleration(key="team"),))
    assert taught(ONE, tolerant).take_forecast().mix == RequestMix((Demand(ONE, 1.0),))


def test_churn_is_departures_per_arrival():
    learner = taught(ONE, ONE, ONE, ONE)
    learner.record_departure(ONE)
    assert learner.take_forecast().churn == 0.25
    assert DemandLearner().take_forecast() == DemandForecast()


def test_forecasts_come_often_at_first_and_regularly_later():
    learner, moments = DemandLearner(), []
    for arrival in range(1, 4 * MAX_ARRIVALS_BETWEEN_FORECASTS + 1):
        learner.record_arrival(ONE)
        if learner.due():
            moments.append(arrival)
            learner.take_forecast()
    assert moments[:4] == [
        FIRST_FORECAST_ARRIVALS,
        2 * FIRST_FORECAST_ARRIVALS,
        4 * FIRST_FORECAST_ARRIVALS,
        8 * FIRST_FORECAST_ARRIVALS,
    ]
    assert moments[-1] - moments[-2] == MAX_ARRIVALS_BETWEEN_FORECASTS


def test_a_kind_that_comes_no_more_fades():
    learner = taught(*[TWO] * FADE_ARRIVALS, *[ONE] * FADE_ARRIVALS)
    weights = {d.request: d.weight for d in learner.take_forecast().mix.demands}
    assert weights[ONE] == pytest.approx(2 / 3)


def test_kinds_without_end_are_forgotten_but_for_the_commonest():
    learner = DemandLearner()
    for number in range(FADE_ARRIVALS):
        learner.record_arrival(ONE if number % 2 else Request(gpus=1, cpu=number + 1))
    mix = learner.take_forecast().mix
    assert len(mix.demands) == KINDS_AFTER_FADE
    assert mix.demands[0].request == ONE


def test_typical_demands_are_the_most_frequent_that_cover_so_much():
    share = Request(share=Share(500, 0))
    mix = RequestMix.of([(ONE, 60), (TWO, 36), (share, 4)])
    assert [d.request for d in mix.typical(0.95).demands] == [ONE, TWO]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(InvalidRequest, match="must be positive"):
        Demand(ONE, weight)


@pytest.mark.parametrize("churn", [-0.1, float("nan")])
def test_a_churn_that_is_none_is_refused(churn):
    with pytest.raises(InvalidRequest, match="must be 0 or more"):
        DemandForecast(churn=churn)
