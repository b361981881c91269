# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.priorities import BAD_SECONDS, GOOD_SECONDS, MAX_NAMES, Priorities

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Scene:
    """PriorityClasses in the API server; `now` is the clock."""

    def __init__(self, server, build):
        self.server = server
        self.build = build
        self.now = 0.0
        self.priorities = Priorities(server.api, most=1000, clock=lambda: self.now)

    def put(self, name, value, policy="Never"):
        self.server.put(f"{PATH}/{name}", {"value": value, "preemptionPolicy": policy})

    async def of(self, **spec):
        return await self.priorities.of(self.build.gpujob(**spec).spec)


@pytest.fixture
def scene(server, build):
    return Scene(server, build)


@pytest.mark.parametrize(
    ("asked", "given"), [(5, 5), (10**9, 1000), (-(10**9), -(10**9)), (1000, 1000)]
)
async def test_a_number_of_one_s_own_is_bounded(scene, asked, given):
    assert (await scene.of(priority=asked)).value == given


async def test_a_class_may_be_beyond_the_bound(scene):
    scene.put("high", 10**6)
    assert (await scene.of(priorityClassName="high")).value == 10**6


async def test_a_class_is_read_again_only_after_a_while(scene):
    scene.put("high", 7)
    await scene.of(priorityClassName="high")
    del scene.server.objects[f"{PATH}/high"]
    scene.now = GOOD_SECONDS - 1
    assert (await scene.of(priorityClassName="high")).value == 7
    scene.now = GOOD_SECONDS
    assert (await scene.of(priorityClassName="high")).problem.reason == "PriorityClassMissing"


async def test_a_class_that_was_missing_is_found_soon(scene):
    assert (await scene.of(priorityClassName="high")).problem is not None
    scene.put("high", 7)
    scene.now = BAD_SECONDS
    assert (await scene.of(priorityClassName="high")).value == 7


async def test_names_that_nobody_knows_are_not_kept_without_bound(scene):
    for number in range(MAX_NAMES + 5):
        await scene.of(priorityClassName=f"c{number}")
    assert len(scene.priorities._known) == MAX_NAMES
