# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_placement import (
    DecisionError,
    DemandForecast,
    DemandLearner,
    Policy,
    Request,
    RequestMix,
    UnknownPolicy,
)
from gpupack_scheduler import policies
from gpupack_scheduler.policies import Policies

ONE = Request(gpus=1)
FORECAST = DemandForecast(RequestMix.of([(ONE, 1)]), churn=1.0)


class Wise(Policy):
    """Remembers the forecast that it was given."""

    def __init__(self, name, forecast=None):
        self.name, self.forecast = name, forecast

    def score(self, view, request, rows):
        raise NotImplementedError

    def informed(self, forecast):
        if self.name == "slow-witted":
            raise DecisionError("no prices")
        return Wise(self.name, forecast)


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(policies, "LOOK_SECONDS", 0.001)


async def learned(subject, *, until):
    async with asyncio.timeout(30):
        task = asyncio.create_task(subject.run())
        while not until():
            await asyncio.sleep(0.001)
        task.cancel()


def learner_of(*, arrivals):
    learner = DemandLearner()
    for _ in range(arrivals):
        learner.record_arrival(ONE)
    return learner


def test_with_a_known_forecast_the_first_decision_is_informed_already():
    subject = Policies("wise", DemandLearner(), known=FORECAST, look=Wise)
    assert subject.named().forecast is FORECAST


def test_a_policy_that_rejects_the_known_forecast_decides_without_it(caplog):
    subject = Policies("slow-witted", DemandLearner(), known=FORECAST, look=Wise)
    assert subject.named().forecast is None
    assert caplog.messages == ["policy slow-witted decides without what is known: no prices"]


async def test_with_a_known_forecast_nothing_is_learned():
    subject = Policies("wise", learner_of(arrivals=1000), known=FORECAST, look=Wise)
    subject.named()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await subject.run()
    assert subject.named().forecast is FORECAST


async def test_the_learned_forecast_reaches_the_policy_in_use():
    subject = Policies("wise", learner_of(arrivals=1000), look=Wise)
    assert subject.named().forecast is None
    await learned(subject, until=lambda: subject.named().forecast is not None)
    assert subject.named().forecast.mix == FORECAST.mix


async def test_a_policy_that_is_asked_for_later_learns_it_too():
    subject = Policies("wise", learner_of(arrivals=1000), look=Wise)
    subject.named()
    await learned(subject, until=lambda: subject.named().forecast is not None)
    subject.named("wiser")
    await learned(subject, until=lambda: subject.named("wiser").forecast is not None)


async def test_a_policy_that_cannot_learn_goes_on_and_keeps_no_other_from_learning(caplog):
    subject = Policies("slow-witted", learner_of(arrivals=1000), look=Wise)
    subject.named()
    subject.named("wise")
    await learned(subject, until=lambda: subject.named("wise").forecast and caplog.messages)
    assert subject.named().forecast is None
    assert "policy slow-witted goes on with what it knew: no prices" in caplog.messages


def test_a_name_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(UnknownPolicy, match="best-fit"):
        Policies("best-fit", DemandLearner()).named("none-such")


async def test_policies_that_were_not_requested_yet_learn_as_well():
    """The first request must get the same decision as in a process with earlier requests."""
    subject = Policies("wise", learner_of(arrivals=1000), look=Wise)
    await learned(subject, until=lambda: len(subject._stale) == 0 and subject._forecast)
    assert subject.named("fgd").forecast.mix == FORECAST.mix
