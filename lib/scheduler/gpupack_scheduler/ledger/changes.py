# SPDX-License-Identifier: Apache-2.0
"""What has changed in the ledger since its changes were last taken: names without values.

The reader takes the values from the ledger as it is then. A name that changed ten times is read
once, and a change that is never taken costs no more than its name.
"""

import dataclasses
from collections.abc import Callable
from typing import Self

from gpupack_placement import NodeName
from gpupack_scheduler.ledger.workers import AttemptKey


@dataclasses.dataclass(slots=True)
class Changes:
    """The changes since the last `take`; mutable.

    Attributes:
        attempts: attempts whose workers or pods hold something else now.
        pods: UIDs of standalone pods that hold something else now.
        jobs: UIDs of GPUJobs that appeared or changed, or are gone.
        lingering: nodes and UIDs of pods that are gone and may still hold something there.
        freed: nodes on which something was released.
        nodes: nodes that were added, removed, repaired or have other devices.
        gates: UIDs of standalone pods that came behind gpupack's gate, changed there or left it.
        on_change: function that is called when something is added.
    """

    attempts: set[AttemptKey] = dataclasses.field(default_factory=set)
    pods: set[str] = dataclasses.field(default_factory=set)
    jobs: set[str] = dataclasses.field(default_factory=set)
    terminating: set[tuple[NodeName, str]] = dataclasses.field(default_factory=set)
    freed: set[NodeName] = dataclasses.field(default_factory=set)
    nodes: set[NodeName] = dataclasses.field(default_factory=set)
    gates: set[str] = dataclasses.field(default_factory=set)
    on_change: Callable[[], None] = lambda: None

    def attempt(self, key: AttemptKey) -> None:
        """Add an attempt of which a worker, or a worker's pod, holds something else."""
        self.attempts.add(key)
        self.on_change()

    def pod(self, uid: str) -> None:
        """Add a standalone pod that holds something else."""
        self.pods.add(uid)
        self.on_change()

    def job(self, uid: str) -> None:
        """Add a GPUJob that appeared or changed, or is gone."""
        self.jobs.add(uid)
        self.on_change()

    def add_terminating(self, node: NodeName, uid: str) -> None:
        """Add a pod that is gone from the API and holds something there, or no longer does."""
        self.terminating.add((node, uid))
        self.on_change()

    def add_released(self, node: NodeName) -> None:
        """Add a node on which something was released."""
        self.freed.add(node)
        self.on_change()

    def node(self, name: NodeName) -> None:
        """Add a node that itself changed."""
        self.nodes.add(name)
        self.on_change()

    def gate(self, uid: str) -> None:
        """Add a pod that came behind gpupack's gate, changed there or left it."""
        self.gates.add(uid)
        self.on_change()

    def take(self) -> Self:
        """Return the changes since the last call, and forget them."""
        seen = dataclasses.replace(self, on_change=lambda: None)
        self.attempts, self.pods, self.jobs = set(), set(), set()
        self.terminating, self.freed, self.nodes, self.gates = set(), set(), set(), set()
        return seen
