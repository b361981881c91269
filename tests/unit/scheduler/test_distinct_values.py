# SPDX-License-Identifier: Apache-2.0
"""Whatever comes and goes, the ledger keeps nothing of what is gone."""

import dataclasses

import msgspec
from extender_builders import OBSERVED, World, called, gpu_node, job, node, plan_request, pod, whole

from gpupack_kubeclient import objects
from gpupack_scheduler.requests import pod_request

ROUNDS = 1_300
"""Half of them fill every table that keeps a maximum of the latest entries, such as memos."""


def entries(value, seen):
    """How many entries all containers have that the value holds, itself or by its parts."""
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)):
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
        return len(value) + sum(entries(each, seen) for each in parts)
    if isinstance(value, list | set | tuple | frozenset):
        return len(value) + sum(entries(each, seen) for each in value)
    if not type(value).__module__.startswith("gpupack"):
        return 0
    return sum(entries(each, seen) for each in parts_of(value))


def parts_of(value):
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return list(vars(value).values())


def kept(world):
    seen = set()
    return entries(world.ledger, seen) + entries(world.owner, seen)


def one_of_each(world, number):
    """A node, a pod that is bound, one that only asks, and three jobs, none like any before."""
    name = f"node-{number}"
    labels = {"stamp": str(number), f"key-{number}": "x"}
    world.ledger.nodes.upsert(node(name, labels=labels, **{f"example.org/{number}": 1}))
    world.ledger.gpus.upsert(gpu_node(name, gpus=3))
    bound = pod(f"bound-{number}", on=name, devices=whole(name, 0), cpu=f"{1000 + number}m")
    world.ledger.pods.upsert(bound)
    asking = pod(f"asking-{number}", cpu=f"{2000 + number}m", labels={f"l{number}": "x"})
    world.ledger.pods.upsert(asking)
    ask = pod_request.of_call(called(asking, nodeSelector={"stamp": str(number)}), (OBSERVED,))
    assert world.filter_pod(ask, [name]).node_names == [name]
    world.plan(plan_request(f"planned-{number}"))
    world.plan(plan_request(f"waiting-{number}", gpuModels=[f"model-{number}"], priority=number))
    placed = job(f"job-{number}", attempt=1, phase="Running", placed=[("elsewhere", [0])])
    world.ledger.jobs.upsert(placed)
    jobs = (placed, job(f"planned-{number}"), job(f"waiting-{number}"))
    return name, (bound, asking), jobs


def all_gone(world, name, pods, jobs):
    for each in jobs:
        world.ledger.jobs.remove(each)
    for each in pods:
        world.ledger.pods.remove(each)
    world.ledger.nodes.remove(objects.Node(metadata=objects.ObjectMeta(name=name)))
    world.ledger.gpus.remove(gpu_node(name))
    world.now += 60
    world.ledger.expire()
    world.decide()


def test_the_ledger_holds_no_more_after_thousands_of_distinct_things_than_after_some():
    world = World()
    sizes = []
    for number in range(ROUNDS):
        all_gone(world, *one_of_each(world, number))
        if number in {ROUNDS // 2, ROUNDS - 1}:
            sizes.append(kept(world))
    assert sizes[1] <= 1.05 * sizes[0]
