# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import node

from gpupack_placement import Cluster, Gang, NodeName, Request, Spread, policy_named
from gpupack_queue import Job, JobId, place_by_policy

FIRST_FIT = policy_named("first-fit")


def nodes_for(gang, *avoid, candidates=None):
    """Where the workers go in a cluster of three nodes of two GPUs each; None: nowhere."""
    cluster = Cluster(node(name, 2, cliques=(0, 0)) for name in ("n1", "n2", "n3"))
    job = Job(JobId("train"), gang, avoid=frozenset(map(NodeName, avoid)))
    places = place_by_policy(FIRST_FIT, cluster, job, candidates=candidates)
    return None if places is None else [place.node for place in places]


@pytest.mark.parametrize(
    ("workers", "avoid", "nodes"),
    [
        (1, (), ["n1"]),
        (1, ("n1",), ["n2"]),
        (1, ("n1", "n2", "n3"), ["n1"]),
        (2, ("n1",), ["n2", "n3"]),
        (3, ("n1",), ["n1", "n2", "n3"]),
        (1, ("gone",), ["n1"]),
    ],
)
def test_a_job_goes_to_nodes_that_it_avoids_only_if_it_fits_nowhere_else(workers, avoid, nodes):
    assert nodes_for(Gang.of(workers, Request(gpus=2)), *avoid) == nodes


def test_avoided_nodes_do_not_help_a_job_that_fits_nowhere():
    assert nodes_for(Gang.of(4, Request(gpus=2)), "n1") is None


def test_candidates_bound_both_tries():
    one = Gang.of(1, Request(gpus=1))
    assert nodes_for(one, "n1", candidates=[NodeName("n1"), NodeName("n3")]) == ["n3"]
    assert nodes_for(one, "n1", candidates=[NodeName("n1")]) == ["n1"]


def test_a_gang_in_one_clique_avoids_nodes_too():
    gang = Gang.of(2, Request(gpus=1), Spread(same_clique=True))
    assert set(nodes_for(gang, "n1")) == {"n2"}
