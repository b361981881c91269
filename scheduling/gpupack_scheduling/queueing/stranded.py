# SPDX-License-Identifier: Apache-2.0
"""A standalone pod that the queue let in to a node which cannot take it any more.

Its node affinity names that node alone. Kubernetes lets it be tightened, never widened.
"""

import dataclasses
from typing import Final

from gpupack_kube import objects
from gpupack_scheduling.queueing.conditions import Note

NODE_GONE: Final = "NodeGone"


@dataclasses.dataclass(frozen=True, slots=True)
class Stranded:
    """Such a pod, which has no controller that would make it again.

    Attributes:
        node: to which it was let in.
        node_is_gone: it never starts; else it starts if the node can take it again.
    """

    pod: objects.Pod
    node: str
    node_is_gone: bool

    @property
    def reason(self) -> str:
        """Return a word for programs."""
        return NODE_GONE if self.node_is_gone else "NodeUnsuitable"

    @property
    def note(self) -> Note:
        """Return what the pod's owner is told."""
        return Note(self.pod.metadata, self.reason, self.text)

    @property
    def text(self) -> str:
        """Tell the pod's owner what is wrong, and what to do."""
        fault = "is gone" if self.node_is_gone else "cannot take the pod now"
        return (
            f"node {self.node}, to which the queue let the pod in, {fault}, and its node affinity "
            "names no other node and cannot be changed: delete the pod and create it again"
        )
