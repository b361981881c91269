# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_crds.demand_forecast import MAX_DEMANDS, Demand, DemandForecast
from gpupack_crds.kinds import GpuCohort
from gpupack_placement import DemandForecast as RequestForecast
from gpupack_placement import Request, RequestMix, Share, policy_named
from gpupack_scheduler import published_forecast
from gpupack_scheduler.published_forecast import PublishedForecast
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

ONE, HALF = (
    Request(gpus=1, cpu=500),
    Request(share=Share(500, 1024)),
)


def forecast(*counts, churn=0.5):
    return RequestForecast(RequestMix.of(counts), churn)


def shown(stores, status, name="cluster"):
    raw = {"metadata": {"name": name}, "status": {"demandForecast": msgspec.to_builtins(status)}}
    stores.cohorts.upsert(msgspec.json.decode(msgspec.json.encode(raw), type=GpuCohort))


async def test_requests_that_fit_no_node_are_not_in_the_forecast():
    both = forecast((ONE, 1), (Request(gpus=100), 1))
    found = await published_forecast.without_unservable(both, lambda asked: asked.gpus < 100)
    assert found == forecast((ONE, 1))


@pytest.mark.parametrize(
    "request_",
    [
        ONE,
        HALF,
        Request(gpus=2, models=("H100", "A100-80GB"), min_memory=40960, memory=1 << 20),
        Request(gpus=0, cpu=100),
    ],
)
def test_a_written_forecast_is_read_unchanged(request_):
    found = published_forecast.from_status(published_forecast.to_status(forecast((request_, 1))))
    assert found.mix.demands[0].request.gpus in {request_.gpus, 0}
    assert found == published_forecast.from_status(published_forecast.to_status(found))
    assert found.churn == 0.5


def test_the_most_common_of_too_many_request_kinds_are_written():
    kinds = [(Request(gpus=1, cpu=n), 2 if n < 10 else 1) for n in range(MAX_DEMANDS + 100)]
    written = published_forecast.to_status(forecast(*kinds))
    assert len(written.demands) == MAX_DEMANDS
    assert {each.cpu_milli for each in written.demands[:10]} == set(range(10))


def test_a_kind_that_names_more_models_than_a_job_may_is_left_out():
    many = Request(gpus=1, models=tuple(f"M{n}" for n in range(17)))
    assert len(published_forecast.to_status(forecast((many, 1), (ONE, 1))).demands) == 1


def test_a_forecast_is_due_once():
    stores = QuotaStores()
    subject = PublishedForecast(stores)
    assert not subject.due()
    shown(stores, published_forecast.to_status(forecast((ONE, 1))))
    assert subject.due()
    assert subject.take_forecast() == published_forecast.from_status(
        published_forecast.to_status(forecast((ONE, 1)))
    )
    assert not subject.due()
    shown(stores, published_forecast.to_status(forecast((ONE, 1))))
    assert not subject.due()
    shown(stores, published_forecast.to_status(forecast((ONE, 1), (HALF, 1))))
    assert subject.due()


def test_no_other_cohort_is_believed():
    stores = QuotaStores()
    shown(stores, published_forecast.to_status(forecast((ONE, 1))), name="mine")
    assert not PublishedForecast(stores).due()


def test_an_invalid_forecast_is_ignored():
    stores = QuotaStores()
    both = Demand(count=1, gpus=1, share_milli=500)
    shown(stores, DemandForecast(demands=(both,)))
    subject = PublishedForecast(stores)
    assert subject.due()
    assert subject.take_forecast() == RequestForecast()


def test_processes_that_read_the_same_forecast_rank_nodes_alike():
    """Prices rest on the last digit of a weight: both go by what is written."""
    written = published_forecast.to_status(
        forecast((ONE, 3), (HALF, 7), (Request(gpus=4), 1), churn=0.333)
    )
    informed = [
        policy_named("bid-price").informed(published_forecast.from_status(written))
        for _ in range(2)
    ]
    assert informed[0].worth.tolist() == informed[1].worth.tolist()
