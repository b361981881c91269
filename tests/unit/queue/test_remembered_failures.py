# SPDX-License-Identifier: Apache-2.0
"""A refused class of jobs is examined again only after a release from which it can profit."""

import pytest
from placement_builders import A100, H100, node
from queue_world import World, with_rules

from gpupack_placement import Request
from gpupack_queue import NO_PREEMPTION

EASY = with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=0)


class Counting(World):
    """A world that counts cycles, and the plans for each job."""

    def __init__(self, *nodes, **kw):
        super().__init__(*nodes, **kw)
        self.planned, self.cycles = {}, 0
        cycle = self.queue.cycle

        def counted(*given):
            self.cycles += 1
            return cycle(*given)

        self.queue.cycle = counted

    def plan(self, cluster, job):
        self.planned[job.id] = self.planned.get(job.id, 0) + 1
        return super().plan(cluster, job)

    def count(self):
        """Count from now on."""
        self.planned, self.cycles = {}, 0
        return self


def many_classes(count, **kw):
    """`large` has a reservation on n1 at 100; jobs of many classes would take a free GPU of it."""
    world = Counting(node("n1", 2), node("n2", 2), node("n3", 1, model=A100), rules=EASY)
    world.runs("a", "n1/0", duration=100.0).runs("b", "n1/1", duration=90.0)
    world.runs("c", "n2/0", duration=1000.0).runs("d", "n2/1", duration=1100.0)
    world.runs("e", "n3/0", duration=1200.0)
    world.submit("large", 2)
    for number in range(count):
        asked = Request(**{"gpus": 1, "cpu": 1 + number} | kw)
        world.submit(f"small{number}", request=asked, tenant="many")
    return world.decide(at=1)


@pytest.mark.parametrize("count", [10, 60])
def test_a_release_that_helps_no_class_costs_as_many_cycles_with_many_classes(count):
    world = many_classes(count).end("b").count().decide(at=2)
    assert not {name for name in world.where if name.startswith("small")}
    assert world.cycles <= 4


def test_no_class_is_planned_again_after_a_release_on_a_node_of_another_model():
    world = many_classes(5, models=(H100,)).end("b").decide(at=2)
    world.end("e").count().decide(at=3)
    assert not {name for name in world.planned if name.startswith("small")}


def test_no_class_is_planned_again_after_a_release_of_less_than_it_requests():
    world = Counting(node("n1", 4), node("n2", 2), rules=EASY)
    world.runs("a", "n1/0 n1/1", duration=100.0)
    world.runs("c", "n2/0", duration=1000.0).runs("d", "n2/1", duration=1100.0)
    world.submit("large", 4).submit("small0", 2).submit("small1", request=Request(gpus=2, cpu=1))
    world.decide(at=1)
    assert not {"small0", "small1"} & world.where.keys()
    world.end("c").count().decide(at=2)
    assert not {name for name in world.planned if name.startswith("small")}


def test_a_class_is_examined_again_when_the_reservation_can_move_to_a_node_that_it_does_not_fit():
    """`large` fits on n2 at 100 once c has ended; `small` needs more CPUs than n2 has."""
    world = Counting(node("n1", 2), node("n2", 2, cpu=1000), rules=EASY)
    world.runs("a", "n1/0", duration=100.0)
    world.runs("c", "n2/0", duration=1000.0).runs("d", "n2/1", duration=90.0)
    world.submit("large", 2).submit("small", request=Request(gpus=1, cpu=2000)).decide(at=1)
    assert "small" not in world.where
    world.end("c").decide(at=2)
    assert world.where["small"] == "n1/1"
    assert world.now == 2
