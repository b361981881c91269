# SPDX-License-Identifier: Apache-2.0
"""Random clusters with a queue, quotas and jobs, for properties."""

from hypothesis import strategies as st
from placement_builders import node
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_queue import OrderPolicy

TENANTS = ("a", "b", "c")
MODELS = ("H100", "T4")

amounts = st.sampled_from([None, 0, 1, 2])
limits_of = st.builds(limit, st.integers(0, 3), lending=amounts, borrowing=amounts)
asks = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([1, 1, 2, 3]),
        "workers": st.sampled_from([1, 1, 2]),
        "tenant": st.sampled_from(TENANTS),
        "priority": st.integers(0, 2),
        "duration": st.sampled_from([None, 2.0, 5.0, 9.0]),
    }
)


@st.composite
def quotas(draw, **limited):
    given_to = [name for name in TENANTS if draw(st.booleans())]
    keys = draw(st.sampled_from([("",), ("H100", ""), MODELS]))
    return [
        quota(
            name,
            cohort=draw(st.sampled_from(["", "left", "right"])),
            weight=draw(st.sampled_from([1.0, 1.0, 3.0, 0.0])),
            **{"gpus": None, **{key: draw(limits_of) for key in keys if key}},
            **({"": draw(limits_of)} if "" in keys else {}),
        )
        for name in given_to
    ]


@st.composite
def worlds(draw, rules=None, most=10):
    nodes = [
        node(f"n{n}", draw(st.integers(1, 3)), model=draw(st.sampled_from(MODELS)))
        for n in range(draw(st.integers(1, 3)))
    ]
    drawn = with_rules(
        order=draw(st.sampled_from(OrderPolicy)),
        reserve_after_seconds=draw(st.sampled_from([0, 5])),
        half_life_seconds=draw(st.sampled_from([0, 0, 3])),
    )
    world = World(
        *nodes,
        quotas=draw(quotas()),
        cohorts=[
            cohort("left", draw(st.integers(0, 2)), parent=draw(st.sampled_from(["", "right"])))
        ],
        rules=drawn if rules is None else rules,
    )
    return world, draw(st.lists(asks, max_size=most))


def submitted(world, jobs, *, at=0.0):
    world.now = at
    for ask in jobs:
        world.submit(f"j{len(world.jobs)}", **ask)
