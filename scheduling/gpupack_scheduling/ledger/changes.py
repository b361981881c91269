# SPDX-License-Identifier: Apache-2.0
"""What has changed in the ledger since somebody last looked: names, no values.

Who looks reads the ledger as it is then. A name that changed ten times is looked at once, and what
was never looked at costs no more than its name.
"""

import dataclasses
from collections.abc import Callable
from typing import Self

import gpupack_core as core
from gpupack_scheduling.ledger.workers import AttemptKey


@dataclasses.dataclass(slots=True)
class Changes:
    """Mutable.

    Attributes:
        attempts: whose workers or pods hold something else now.
        pods: UIDs of pods of their own that hold something else now.
        jobs: UIDs of GPUJobs that were shown, or are gone.
        lingering: nodes and UIDs of pods that are gone and may hold something there still.
        freed: nodes on which somebody has given something back.
        nodes: nodes that were added, removed, repaired or have other devices.
        gates: UIDs of pods of their own that came behind our gate, changed there or left it.
        told: called when something is added.
    """

    attempts: set[AttemptKey] = dataclasses.field(default_factory=set)
    pods: set[str] = dataclasses.field(default_factory=set)
    jobs: set[str] = dataclasses.field(default_factory=set)
    lingering: set[tuple[core.NodeName, str]] = dataclasses.field(default_factory=set)
    freed: set[core.NodeName] = dataclasses.field(default_factory=set)
    nodes: set[core.NodeName] = dataclasses.field(default_factory=set)
    gates: set[str] = dataclasses.field(default_factory=set)
    told: Callable[[], None] = lambda: None

    def attempt(self, key: AttemptKey) -> None:
        """A worker of it, or a worker's pod, holds something else."""
        self.attempts.add(key)
        self.told()

    def pod(self, uid: str) -> None:
        """A pod of its own holds something else."""
        self.pods.add(uid)
        self.told()

    def job(self, uid: str) -> None:
        """A GPUJob was shown, or is gone."""
        self.jobs.add(uid)
        self.told()

    def lingers(self, node: core.NodeName, uid: str) -> None:
        """A pod that is gone holds something there, or nothing any more."""
        self.lingering.add((node, uid))
        self.told()

    def given_back(self, node: core.NodeName) -> None:
        """Something on the node may be had again."""
        self.freed.add(node)
        self.told()

    def node(self, name: core.NodeName) -> None:
        """The node itself changed."""
        self.nodes.add(name)
        self.told()

    def gate(self, uid: str) -> None:
        """A pod came behind our gate, changed there or left it."""
        self.gates.add(uid)
        self.told()

    def take(self) -> Self:
        """What has changed since the last call; from now on it is no news."""
        seen = dataclasses.replace(self, told=lambda: None)
        self.attempts, self.pods, self.jobs = set(), set(), set()
        self.lingering, self.freed, self.nodes, self.gates = set(), set(), set(), set()
        return seen
