# SPDX-License-Identifier: Apache-2.0
"""Who hands out this node's GPUs: we do (owned), or another device plugin (observed).

A node becomes observed when the kubelet has healthy devices of one of the resources that we are
told to observe. It stays so, whatever becomes of that plugin: while it restarts or is upgraded the
kubelet shows none of its devices, and pods hold them all the same. Were we to register then, two
plugins would hand out the same GPUs. GPUNode keeps it over restarts of the agent; an administrator
who took the other plugin away deletes the GPUNode.
"""

import logging

from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus, Mode

log = logging.getLogger(__name__)


class NodeMode:
    """By which resource the kubelet hands out this node's GPUs, as far as we know.

    Args:
        observed: resources of other plugins, the first that is served counts.
    """

    def __init__(self, observed: tuple[str, ...]) -> None:
        self._observed = observed
        self._asked = not observed
        self.resource: str = names.GPU

    @property
    def mode(self) -> Mode:
        """What GPUNode calls it."""
        return "owned" if self.resource == names.GPU else "observed"

    @property
    def undecided(self) -> bool:
        """Whether another plugin that shows itself would change anything."""
        return bool(self._observed) and self.mode == "owned"

    def may_register(self) -> bool:
        """Whether our plugins may: the kubelet was asked, and nobody else serves GPUs here."""
        return self._asked and self.mode == "owned"

    def see(self, served: frozenset[str]) -> None:
        """Take in which resources the kubelet has at this moment."""
        self._asked = True
        theirs = next((name for name in self._observed if name in served), None)
        if theirs is not None and self.mode == "owned":
            log.warning(
                "another device plugin serves %s on this node: it is observed from now on, and "
                "gpupack hands out nothing here until that plugin is gone and this GPUNode deleted",
                theirs,
            )
            self.resource = theirs

    def recall(self, recorded: GpuNodeStatus) -> None:
        """Take in what GPUNode recorded: what was observed still is."""
        if recorded.mode == "observed":
            self.resource = recorded.resource_name

    def forget(self) -> None:
        """GPUNode was deleted: a node that was observed is asked anew before anything else."""
        if self.mode == "observed":
            self.resource = names.GPU
            self._asked = not self._observed
