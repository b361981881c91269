# SPDX-License-Identifier: Apache-2.0
"""A standalone pod that the queue admitted to a node which cannot take it any more.

Its node affinity names only that node. Kubernetes permits a narrower affinity, never a wider one.
"""

import dataclasses
from typing import Final

from gpupack_kubeclient import objects
from gpupack_scheduler.queueing.conditions import Note

NODE_GONE: Final = "NodeDeleted"


@dataclasses.dataclass(frozen=True, slots=True)
class Stranded:
    """A stranded pod without a controller that would create it again.

    Attributes:
        node: the node to which it was admitted.
        node_is_gone: it never starts; else it starts if the node can take it again.
    """

    pod: objects.Pod
    node: str
    node_is_gone: bool

    @property
    def reason(self) -> str:
        """Return the reason for programs."""
        return NODE_GONE if self.node_is_gone else "NodeUnsuitable"

    @property
    def note(self) -> Note:
        """Return the note for the pod's condition and event."""
        return Note(self.pod.metadata, self.reason, self.text)

    @property
    def text(self) -> str:
        """Return the message for the pod's owner: what is wrong, and what to do."""
        fault = "is gone" if self.node_is_gone else "cannot take the pod now"
        return (
            f"node {self.node}, to which the queue let the pod in, {fault}, and its node affinity "
            "names no other node and cannot be changed: delete the pod and create it again"
        )
