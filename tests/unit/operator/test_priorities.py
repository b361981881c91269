# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.priorities import FOUND_SECONDS, MAX_NAMES, PROBLEM_SECONDS, Priorities

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Scene:
    """PriorityClasses in the API server; `now` is the clock."""

    def __init__(self, server, build):
        self.server = server
        self.build = build
        self.now = 0.0
        self.priorities = Priorities(server.api, max_priority=1000, clock=lambda: self.now)

    def put(self, name, value, policy="Never"):
        self.server.put(f"{PATH}/{name}", {"value": value, "preemptionPolicy": policy})

    async def of(self, **spec):
        return await self.priorities.of(self.build.gpujob(**spec).spec)


@pytest.fixture
def scene(server, build):
    return Scene(server, build)


@pytest.mark.parametrize(
    ("requested", "given"), [(5, 5), (10**9, 1000), (-(10**9), -(10**9)), (1000, 1000)]
)
async def test_a_numeric_priority_is_limited(scene, requested, given):
    assert (await scene.of(priority=requested)).value == given


async def test_a_priority_class_may_exceed_the_limit(scene):
    scene.put("high", 10**6)
    assert (await scene.of(priorityClassName="high")).value == 10**6


async def test_a_priority_class_is_cached_for_a_while(scene):
    scene.put("high", 7)
    await scene.of(priorityClassName="high")
    del scene.server.objects[f"{PATH}/high"]
    scene.now = FOUND_SECONDS - 1
    assert (await scene.of(priorityClassName="high")).value == 7
    scene.now = FOUND_SECONDS
    assert (await scene.of(priorityClassName="high")).problem.reason == "PriorityClassMissing"


async def test_a_missing_priority_class_is_read_again_soon(scene):
    assert (await scene.of(priorityClassName="high")).problem is not None
    scene.put("high", 7)
    scene.now = PROBLEM_SECONDS
    assert (await scene.of(priorityClassName="high")).value == 7


async def test_the_number_of_cached_class_names_is_limited(scene):
    for number in range(MAX_NAMES + 5):
        await scene.of(priorityClassName=f"c{number}")
    assert len(scene.priorities._known) == MAX_NAMES
