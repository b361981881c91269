# SPDX-License-Identifier: Apache-2.0
import numpy as np
from placement_builders import cluster_of, node, share, taken, whole

from gpupack_placement import POLICIES, Holder, Placement, decide
from gpupack_placement.memo import MAX_FIGURES, RowMemo


class Counted:
    """Ten times the row, and which rows were asked about."""

    def __init__(self):
        self.asked = []

    def __call__(self, rows):
        figures = np.arange(6)[rows]
        self.asked.append(figures.tolist())
        return figures * 10


def test_a_row_is_worked_out_again_only_when_its_version_changed():
    memo, compute, version = RowMemo(np.int64), Counted(), np.arange(1, 7)
    assert memo.of("kind", version, compute).tolist() == [0, 10, 20, 30, 40, 50]
    memo.of("kind", version, compute)
    version[3] = 99
    memo.of("kind", version, compute)
    memo.of("other", version, compute)
    assert compute.asked == [[0, 1, 2, 3, 4, 5], [3], [0, 1, 2, 3, 4, 5]]


def test_of_the_rows_that_changed_only_those_asked_about_are_worked_out():
    memo, compute, version = RowMemo(np.int64), Counted(), np.arange(1, 7)
    assert memo.of("kind", version, compute, np.array([1, 4]))[[1, 4]].tolist() == [10, 40]
    version[[1, 3]] = 99
    assert memo.of("kind", version, compute, np.array([1, 2]))[[1, 2]].tolist() == [10, 20]
    assert memo.of("kind", version, compute, np.array([4])).tolist()[4] == 40
    assert compute.asked == [[1, 4], [1, 2]]


def test_going_back_to_an_older_version_is_a_change_too():
    memo, compute, version = RowMemo(np.int64), Counted(), np.arange(1, 7)
    memo.of("kind", version, compute)
    newer = version.copy()
    newer[2] = 99
    memo.of("kind", newer, compute)
    memo.of("kind", version, compute)
    assert compute.asked[1:] == [[2], [2]]


def test_the_kind_not_asked_about_the_longest_is_forgotten():
    memo, compute, version = RowMemo(np.int64, kept=2), Counted(), np.arange(1, 7)
    for kind in ("a", "b", "a", "c", "a", "b"):
        memo.of(kind, version, compute)
    assert len(compute.asked) == 4


def test_fewer_kinds_are_kept_where_there_are_many_rows():
    memo, rows = RowMemo(np.int8), MAX_FIGURES // 2
    version = np.zeros(rows, np.int64)
    for kind in "abcde":
        memo.of(kind, version, lambda at: np.zeros(rows, np.int8)[at])
    assert len(memo) == 3


def test_versions_of_no_two_states_are_equal_in_whatever_copy():
    cluster = cluster_of(node("a"), node("b"))
    before = cluster.arrays.version.tolist()
    sheets = [cluster.overlay(), cluster.fork(), cluster.emptied(), cluster]
    for sheet in (sheets[0], sheets[1], sheets[3]):
        taken(sheet, "a", 0)
    seen = [tuple(sheet.arrays.version.tolist()) for sheet in sheets]
    assert len({version[cluster.row("a")] for version in [*seen, before]}) == 5
    assert {version[cluster.row("b")] for version in (seen[0], seen[1], seen[3])} == {before[1]}


def test_a_row_emptied_twice_is_not_taken_for_the_one_that_was_not():
    cluster = taken(cluster_of(node("a")), "a", 0)
    once = cluster.emptied()
    assert once.emptied().arrays.version.tolist() == once.arrays.version.tolist()


def test_what_fits_is_recomputed_after_each_change_of_a_node():
    cluster = cluster_of(node("a", 1))
    first_fit, asked = POLICIES["first-fit"], share(500)
    assert isinstance(decide(cluster, asked, first_fit), Placement)
    cluster.set_node(node("a", 1, cordoned=True))
    assert not isinstance(decide(cluster, asked, first_fit), Placement)
    cluster.set_node(node("a", 1))
    cluster.take(Holder("x"), decide(cluster, whole(1), first_fit))
    assert not isinstance(decide(cluster, asked, first_fit), Placement)
    cluster.remove_node("a")
    cluster.give_back(Holder("x"))
    assert not isinstance(decide(cluster, asked, first_fit), Placement)
    cluster.set_node(node("b", 1))
    assert decide(cluster, asked, first_fit).node == "b"
