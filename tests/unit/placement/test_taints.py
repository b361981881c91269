# SPDX-License-Identifier: Apache-2.0
"""Taint sets judged by looking taints up, and by the book: one toleration after the other."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import BEST_FIT, node

from gpupack_placement import (
    Cluster,
    Effect,
    Reason,
    Request,
    Taint,
    Toleration,
    TolerationOperator,
    choose,
    explain,
    nearly,
)
from gpupack_placement.taints import TaintSets, Tolerated

KEYS = st.sampled_from(["team", "gpu", "node.kubernetes.io/x"])
VALUES = st.sampled_from(["", "a", "b"])
TAINTS = st.builds(Taint, KEYS, VALUES, st.sampled_from(Effect))
SETS = st.lists(TAINTS, max_size=3).map(tuple)
EFFECTS = st.none() | st.sampled_from(Effect)
TOLERATIONS = st.lists(
    st.builds(Toleration, KEYS, st.sampled_from(TolerationOperator), VALUES, EFFECTS)
    | st.builds(Toleration, st.just(""), st.just(TolerationOperator.EXISTS), VALUES, EFFECTS),
    max_size=4,
).map(tuple)


def tolerates(toleration, taint):
    if toleration.effect not in {None, taint.effect} or toleration.key not in {"", taint.key}:
        return False
    return toleration.operator is TolerationOperator.EXISTS or toleration.value == taint.value


def by_the_book(tolerations, taints):
    return all(
        taint.effect is Effect.PREFER_NO_SCHEDULE or any(tolerates(t, taint) for t in tolerations)
        for taint in taints
    )


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("k", value="v"), True),
        (Toleration("k", value="w"), False),
        (Toleration("k", TolerationOperator.EXISTS), True),
        (Toleration("k", TolerationOperator.EXISTS, "w"), True),
        (Toleration("", TolerationOperator.EXISTS), True),
        (Toleration("", TolerationOperator.EXISTS, effect=Effect.NO_EXECUTE), False),
        (Toleration("other", TolerationOperator.EXISTS), False),
        (Toleration("k", value="v", effect=Effect.NO_EXECUTE), False),
        (Toleration("k", value="v", effect=Effect.NO_SCHEDULE), True),
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration, tolerated):
    assert (Taint("k", "v") in Tolerated((toleration,))) is tolerated


@given(TOLERATIONS, SETS)
def test_a_taint_set_is_open_to_a_pod_whose_tolerations_cover_each_taint(tolerations, taints):
    assert Tolerated(tolerations).includes_all(taints) is by_the_book(tolerations, taints)


@given(st.lists(st.tuples(SETS, TOLERATIONS, st.booleans()), max_size=12))
def test_what_is_kept_follows_the_sets_as_they_come_and_go(steps):
    table, numbers = TaintSets(), []
    for taints, tolerations, ends in steps:
        if ends and numbers:
            table.give_back(numbers.pop(0))
        numbers.append(table.take(taints))
        found = table.open_to(tolerations)
        expected = {each for each in table.in_use if by_the_book(tolerations, each)}
        assert found.sets == expected
        assert {table.values[number] for number in set(numbers) if found.mask[number]} == expected


def tolerations_of(number):
    return tuple(Toleration(f"key-{i}", value="v") for i in range(number))


def test_what_is_kept_is_bounded_in_number_and_in_text():
    table = TaintSets()
    table.take((Taint("team"),))
    for number in range(200):
        table.open_to((Toleration("k", value=str(number)),))
    assert len(table._open) == 64
    for number in range(20):
        table.open_to((Toleration("k", value=f"{number}" * (1 << 20)),))
    assert table._text <= 4 << 20


def test_one_call_judges_the_taint_sets_once(monkeypatch):
    cluster, judged = tainted(20), []
    whole = Tolerated.includes_all
    monkeypatch.setattr(Tolerated, "includes_all", lambda s, t: judged.append(t) or whole(s, t))
    refused(cluster, tolerations_of(3))
    assert len(judged) == 20


def test_a_pod_of_hundreds_of_tolerations_costs_little_more_than_one_of_a_single_one():
    cluster = tainted(300)
    one, many = (best_seconds(cluster, number) for number in (1, 511))
    assert many < 5 * one + 0.005


def tainted(nodes):
    """Each node with a taint set of its own."""
    return Cluster(
        node(f"n{i}", taints=(Taint("a", str(i)), Taint("b", str(i)))) for i in range(nodes)
    )


def refused(cluster, tolerations):
    """What filter asks for a pod that fits nowhere."""
    request = Request(gpus=1, tolerations=tolerations)
    assert choose(cluster, request, BEST_FIT) is None
    assert nearly(cluster, request)[0] is None
    assert set(explain(cluster, request).values()) == {Reason.TAINT_NOT_TOLERATED}


def best_seconds(cluster, number):
    """CPU time, of which other work on the machine takes nothing."""
    times = []
    for attempt in range(3):
        tolerations = (Toleration(f"new-{attempt}", value="v"), *tolerations_of(number - 1))
        began = time.process_time()
        refused(cluster, tolerations)
        times.append(time.process_time() - began)
    return min(times)
