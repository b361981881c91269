# SPDX-License-Identifier: Apache-2.0
"""Pod groups under seeded random events: processes that end, late writes, failures, deletions."""

import os
import random

import msgspec
import pytest
from extender_builders import World, gated

from gpupack_crds import names
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.queueing.pending import gate

NODES = ("a", "b", "c")
MAX_GROUPS = 6
SEEDS = int(os.environ.get("GPUPACK_TEST_CASES", "10"))


class Api:
    """The pods of an API server, their controllers, and an extender that may be replaced.

    Args:
        seed: seed of all events.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.world = World()
        self.world.now = 1_767_225_630.0
        self.groups = {}
        """Size, minimum and GPUs of each group."""
        self.pods = {}
        """All pods, by name."""
        self.group_of = {}
        self.taken = self.created = 0
        self.start()

    def start(self):
        """Begin a process that sees all pods; writes of the one before are lost."""
        self.world.use(self.world.new_ledger())
        for node in NODES:
            self.world.add_node(node)
        self.taken = 0
        for pod in self.pods.values():
            self.world.ledger.pods.upsert(pod)
        self.world.decide()

    def create(self):
        """Create a group; its controller keeps as many pods as it has members."""
        if len(self.groups) >= MAX_GROUPS:
            return
        name = f"g-{len(self.groups)}"
        least = self.chance.randint(1, 5)
        size = least + self.chance.choice((0, 0, 0, 1))
        self.groups[name] = (size, least, self.chance.randint(1, 2))
        for _ in range(self.chance.randint(1, size)):
            self.add_member(name)

    def compete(self):
        """Create pods of another namespace that are older than all members."""
        for _ in range(3):
            self.created += 1
            self.put(gated(f"c-{self.created}", gpus=2, created=0, namespace="other"), "none")

    def add_member(self, group):
        _, least, gpus = self.groups[group]
        self.created += 1
        name = f"{group}-{self.created}"
        made = gated(
            name,
            gpus=gpus,
            labels={names.POD_GROUP_LABEL: group},
            annotations={names.MIN_MEMBERS_ANNOTATION: str(least)},
            created=min(self.created // 8, 59),
        )
        self.put(made, group)

    def put(self, pod, group=None):
        name = pod.metadata.name
        self.pods[name] = pod
        self.group_of[name] = group or self.group_of[name]
        self.world.ledger.pods.upsert(pod)

    def members(self, group):
        return [pod for name, pod in self.pods.items() if self.group_of[name] == group]

    def replace(self):
        """Let the controllers create what is missing."""
        for group, (size, _, _) in self.groups.items():
            for _ in range(size - len(self.members(group))):
                self.add_member(group)

    def write(self, most=99):
        """Carry out the next writes of the process, in its order."""
        opened = self.world.gates.opened
        for asked, place in opened[self.taken : self.taken + most]:
            self.taken += 1
            name = asked.metadata.name
            current = self.pods.get(name)
            if current is None or current.metadata.uid != asked.metadata.uid:
                continue
            patch = gate.opening(asked, place, self.world.gates.members[name])
            annotations = current.metadata.annotations | patch["metadata"]["annotations"]
            metadata = msgspec.structs.replace(current.metadata, annotations=annotations)
            spec = msgspec.structs.replace(current.spec, scheduling_gates=())
            self.put(msgspec.structs.replace(current, metadata=metadata, spec=spec))

    def bind(self, most=99):
        """Bind open pods as kube-scheduler does."""
        waiting = [p for p in self.pods.values() if is_open(p) and not p.spec.node_name]
        for pod in waiting[:most]:
            place = gate.written_place(pod)
            self.pods[pod.metadata.name] = self.world.bind(pod, place.node)

    def remove(self, pod):
        del self.pods[pod.metadata.name]
        self.world.ledger.pods.remove(pod)

    def evict(self):
        for each in list(self.world.owner.evictions()):
            if each.name in self.pods:
                self.remove(self.pods[each.name])

    def step(self, *, fails):
        action = self.chance.choice(
            ("create", "compete", "replace", "write", "bind", "restart", "wait", "end")
            + (("fail",) if fails else ())
        )
        match action:
            case "write":
                self.write(self.chance.randint(1, 4))
            case "bind":
                self.bind(self.chance.randint(1, 3))
            case "restart":
                self.start()
            case "wait":
                self.world.now += self.chance.choice((0.1, 2.0, 10.0))
            case "create" | "compete" | "replace" | "end" | "fail":
                getattr(self, action)()
        self.world.decide()

    def fail(self):
        bound = [p for p in self.pods.values() if p.spec.node_name]
        if bound:
            self.remove(self.chance.choice(bound))

    def end(self):
        """End a group that runs: its controller deletes all pods."""
        running = [g for g in self.groups if self.running(g) >= self.groups[g][1]]
        if running:
            group = self.chance.choice(running)
            del self.groups[group]
            for pod in [p for n, p in self.pods.items() if self.group_of[n] == group]:
                self.remove(pod)
            self.groups[f"{group}-again"] = (1, 1, 1)

    def running(self, group):
        return sum(is_open(pod) for pod in self.members(group))

    def settle(self):
        """Let everything happen that is due, for ten minutes."""
        for _ in range(40):
            self.replace()
            self.world.now += 15
            self.world.decide()
            self.write()
            self.world.decide()
            self.bind()
            self.world.decide()
            self.evict()
            self.world.decide()

    def check(self):
        """Compare the running jobs with the pods, and the pods with the GPUs."""
        world, held = self.world, []
        claims = world.ledger.claims.pods.values()
        holders = {claim.gang or claim.name for claim in claims}
        expected = [
            f"pod {each}" if isinstance(each, str) else f"pod group {each.group.name}"
            for each in holders
        ]
        assert sorted(world.running()) == sorted(expected)
        for claim in claims:
            held += [grant.uuid for grant in claim.placement.devices]
        assert len(held) == len(set(held))
        assert world.ledger.claims.contradictions == 0


def is_open(pod):
    return not pod.spec.scheduling_gates


def after_steps(seed, *, fails):
    """Return the API server after 60 checked steps, once nothing changes any more."""
    api = Api(seed)
    for _ in range(60):
        api.step(fails=fails)
        api.check()
    api.settle()
    api.check()
    return api


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_group_runs_in_part_however_often_the_process_ends(seed):
    api = after_steps(seed, fails=False)
    for group, (_, least, _) in api.groups.items():
        assert api.running(group) == 0 or api.running(group) >= least, group
    for pod in api.members("none"):
        api.remove(pod)
    api.settle()
    assert any(api.running(group) for group in api.groups) or not api.groups


@pytest.mark.parametrize("seed", range(SEEDS))
def test_claims_and_running_jobs_agree_while_members_fail(seed):
    api = after_steps(seed, fails=True)
    states = {claim.state for claim in api.world.ledger.claims.pods.values()}
    assert states <= {State.BOUND}
