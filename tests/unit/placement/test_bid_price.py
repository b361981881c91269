# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import A100, cluster_of, node, place, share, taken, whole
from placement_strategies import cases, clusters, requests
from policy_reference import (
    Gpu,
    accepts,
    after,
    best_node,
    does,
    fragmentation,
    fullest,
    whole_weights,
)

from gpupack_placement import (
    POLICIES,
    DecisionError,
    DemandForecast,
    Holder,
    Placement,
    RequestMix,
    decide,
)
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.policies import bid_price
from gpupack_placement.pricing import cutting_stock
from gpupack_placement.pricing.gaps import plain, worth_of_gaps
from gpupack_placement.pricing.large_jobs import with_large_jobs
from gpupack_placement.pricing.stranding import CORES_PER_GPU, cores_per_gpu

BID_PRICE = POLICIES["bid-price"]
mixes = st.lists(st.tuples(requests(), st.integers(1, 9)), min_size=1, max_size=6).map(
    RequestMix.of
)
churns = st.sampled_from([0.0, 0.2, 0.5, 1.0])


def informed(*requests, churn=0.0):
    return BID_PRICE.informed(
        DemandForecast(RequestMix.of((request, 1) for request in requests), churn)
    )


def parts(gpus):
    return round(gpus * UNIT)


def psi(worth, cpu, cores):
    """Of the table: to 1/4096 GPU."""
    x = worth - (cpu * round(UNIT * 1024 / (1000 * cores)) >> 10)
    if abs(x) >= 2 * UNIT:
        return max(x * 845 // 1000, 0)
    corner, at = 0.058, (x >> 8) / 4096
    return round(0.845 * corner * math.log1p(math.exp(at / corner)) * UNIT)


def utility(here, worth, cores):
    gaps = sum(int(worth[gpu.milli]) for gpu in here.gpus)
    return gaps - psi(gaps, here.cpu, cores)


def of_pressure(pressure):
    scarcity = min(1.0, max(0.0, (pressure - 0.75) / 0.25))
    return parts(0.03 * math.sqrt(min(1.0, pressure))), parts(0.3 * scarcity)


def sought(cluster, mix):
    """Prices of a GPU, busy and while filling, by the order of its node."""
    inventory = [(n, [d for d in n.devices if not d.profile]) for n in cluster.nodes()]
    alike = {n.name: gpus for n, gpus in inventory if len({(g.model, g.memory) for g in gpus}) == 1}
    supply = Counter((g.model, g.memory) for gpus in alike.values() for g in gpus)
    asked, pressure = sum(d.weight * d.request.milli for d in mix.demands), Counter()
    for demand in mix.demands:
        those = [k for k in supply if accepts(Gpu(0, *k, 0, 0, 0), demand.request)]
        if demand.request.milli and len(those) < len(supply):
            gpus = demand.weight * demand.request.milli / asked * supply.total()
            pressure.update({kind: gpus / sum(supply[k] for k in those) for kind in those})
    each = {kind: of_pressure(pressure[kind]) for kind in supply}
    rows = {name: cluster.row(name) for name in alike}
    return {
        int(cluster.arrays.order[rows[name]]): each[gpus[0].model, gpus[0].memory]
        for name, gpus in alike.items()
    }


def formula(cluster, mix, churn):
    """Of the docstring, of one node, in whole numbers as there."""
    theta = round(1000 * min(1.0, churn / 0.5))
    worth, cores = worth_of_gaps(mix), cores_per_gpu(mix)
    weights, prices = whole_weights(with_large_jobs(mix)), sought(cluster, mix)

    def score(here, request):
        gpus = [fullest(here, request)] if request.share else []
        if request.gpus:
            gpus = [g for g in here.gpus if does(g, request) and g.milli == 1000][: request.gpus]
        then = after(here, request, gpus)
        gain = utility(then, worth, cores) - utility(here, worth, cores)
        gain -= parts(0.034) * bool(request.share and gpus[0].milli == 1000)
        gain *= 1000 - round(0.6 * theta)
        if not request.milli:
            blocked = parts(0.182) * any(g.milli for g in here.gpus)
            gain -= (1000 - theta) * (blocked + parts(0.131) * then.cpu // 128_000)
        worse = fragmentation(then, weights) - fragmentation(here, weights)
        busy, filling = prices.get(here.order, (0, 0))
        price = theta * busy + (1000 - theta) * filling
        total = 1000 * gain - theta * worse - price * request.milli
        return total // (parts(0.0234) * 1_000_000)

    return score


@cases
@given(clusters(fill=10), st.lists(requests(), min_size=1, max_size=3), mixes, churns)
def test_it_decides_as_its_formula_does_node_by_node(cluster, asked, mix, churn):
    policy = BID_PRICE.informed(DemandForecast(mix, churn))
    for number, request in enumerate(asked * 2):
        node, _ = best_node(cluster, request, formula(cluster, mix, churn))
        answer = decide(cluster, request, policy)
        assert (answer.node if isinstance(answer, Placement) else None) == node
        if isinstance(answer, Placement):
            cluster.take(Holder(f"new{number}"), answer)


def test_a_share_goes_where_the_gap_that_is_left_is_still_of_use():
    cluster = cluster_of(node("a", 1), node("b", 1))
    taken(taken(cluster, "a", 0, milli=400, memory=0), "b", 0, milli=200, memory=0)
    # 600 or 800 free: 300 more leaves 300 or 500
    assert place(cluster, share(300), informed(share(300), share(300), whole(1))) == "a/0"
    assert place(cluster, share(300), informed(share(500), share(600), whole(1))) == "b/0"


def test_pods_without_gpus_keep_away_from_free_gpus_while_nothing_leaves():
    cluster = cluster_of(node("free", 2, cpu=96_000), node("full", 2, cpu=96_000))
    taken(cluster, "full", 0, 1)
    mix = whole(1, cpu=8000), share(500, cpu=4000)
    assert decide(cluster, whole(0, cpu=1000), informed(*mix)).node == "full"
    assert decide(cluster, whole(0, cpu=1000), informed(*mix, churn=1.0)).node == "free"


def test_where_jobs_come_and_go_it_keeps_nodes_idle_for_large_ones():
    cluster = taken(cluster_of(node("idle", 8), node("used", 8)), "used", 0, 1, 2, 3, 4)
    mix = [whole(1)] * 50 + [whole(8)]
    assert place(cluster, whole(1), informed(*mix, churn=0.0)) == "idle/0"
    assert place(cluster, whole(1), informed(*mix, churn=1.0)).startswith("used/")


def test_where_jobs_come_and_go_others_leave_the_gpus_that_some_must_have():
    cluster = cluster_of(node("sought", 2, model=A100), node("other", 2))
    mix = [whole(1, models=(A100,))] * 2 + [whole(1)] * 6
    assert place(cluster, whole(1), informed(*mix)) == "sought/0"
    assert place(cluster, whole(1), informed(*mix, churn=1.0)) == "other/0"
    assert place(cluster, whole(1, models=(A100,)), informed(*mix, churn=1.0)) == "sought/0"


def test_without_departures_other_requests_avoid_gpus_that_some_requests_need():
    cluster = cluster_of(node("sought", 2, model=A100), node("other", 2))
    mix = [whole(1, models=(A100,))] * 4 + [whole(1)] * 5
    assert place(cluster, whole(1), informed(*mix)) == "other/0"
    assert place(cluster, whole(1, models=(A100,)), informed(*mix)) == "sought/0"


def test_while_nothing_is_known_the_gpu_that_fewest_could_do_with_goes_first():
    small, medium, large = (
        node(name, 2, gpu_memory=memory)
        for name, memory in (("m", 16_000), ("b", 24_000), ("a", 48_000))
    )
    cluster = cluster_of(large, medium, small)
    assert place(cluster, whole(1), BID_PRICE) == "m/0"
    assert place(cluster, share(100), BID_PRICE) == "m/0"
    assert place(cluster, whole(2, min_memory=20_000), BID_PRICE) == "b/0 b/1"
    assert place(cluster, whole(1, min_memory=48_000), BID_PRICE) == "a/0"
    assert place(taken(cluster, "m", 0, 1, memory=16_000), whole(1), BID_PRICE) == "b/0"


def test_while_nothing_is_known_gpus_without_nvlink_go_before_those_of_large_cliques():
    cliques = {"eight": [0] * 8, "four": [0] * 4 + [1] * 4, "none": None}
    cluster = cluster_of(*(node(name, 8, cliques=of) for name, of in cliques.items()))
    assert place(cluster, whole(8), BID_PRICE).startswith("none/")
    assert place(taken(cluster, "none", 0), whole(8), BID_PRICE).startswith("four/")


def test_what_is_learned_takes_the_place_of_what_is_taken_for_granted():
    cluster = cluster_of(node("large", 8), node("small", 8, gpu_memory=16_000))
    assert place(cluster, whole(1), BID_PRICE) == "small/0"
    wanted = [whole(1, models=("H100",))] * 4 + [whole(1)] * 5
    without_demand = informed(whole(1), whole(1, min_memory=10_000))
    assert place(cluster, whole(1), without_demand) == place(cluster, whole(1), informed(whole(1)))
    other = cluster_of(node("large", 8, model=A100), node("small", 8, gpu_memory=16_000))
    assert place(other, whole(1), informed(*wanted)) == "large/0"


def test_cpu_that_a_node_lacks_for_its_gaps_is_not_made_scarcer():
    cluster = cluster_of(node("scarce", 4, cpu=34_000), node("ample", 4, cpu=96_000))
    mix = whole(1, cpu=10_000), share(500, cpu=5000)
    assert place(cluster, whole(1, cpu=20_000), informed(*mix)) == "ample/0"


def test_while_nothing_is_known_a_gap_is_worth_what_it_holds():
    policy = POLICIES["bid-price"]
    assert (policy.worth == plain()).all()
    assert policy.stranding.of(parts(1.0), 0) == pytest.approx(parts(0.845), abs=UNIT / 1000)
    assert CORES_PER_GPU == 12.0
    assert policy.informed(DemandForecast()) is not policy


@pytest.mark.parametrize("name", ["bid-price", "fgd"])
def test_the_same_forecast_again_keeps_the_computed_prices(name):
    mix = RequestMix.of([(whole(1), 2.0), (share(500), 1.0)])
    policy = POLICIES[name].informed(DemandForecast(mix, churn=0.9))
    assert policy.informed(DemandForecast(mix, churn=0.95)) is policy
    other = RequestMix.of([(whole(8), 1.0)])
    assert policy.informed(DemandForecast(other, churn=0.9)) is not policy


def test_without_a_solver_it_says_so_and_the_old_one_goes_on(monkeypatch):
    def none_found(*_):
        raise cutting_stock.NoPrices("HiGHS found no prices within 1 s")

    monkeypatch.setattr(bid_price, "worth_of_gaps", none_found)
    with pytest.raises(DecisionError, match="no prices"):
        informed(whole(1))
    assert place(cluster_of(node("a")), whole(1), BID_PRICE) == "a/0"


def test_mig_slices_are_placed_as_pods_without_gpus():
    cluster = cluster_of(node("a", 2))
    assert place(cluster, share(100), informed(share(100))) == "a/0"
