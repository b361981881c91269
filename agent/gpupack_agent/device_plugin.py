# SPDX-License-Identifier: Apache-2.0
"""Where the kubelet gets tickets of one resource: a plugin, its registration, its tickets.

A node has two: for whole GPUs and for shares. A GPU has tickets at both, but is held in one way at
a time.
"""

import dataclasses

from gpupack_agent import holders, tickets
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.plugin_servicer import PluginServicer
from gpupack_agent.registration import Registration
from gpupack_crds import names


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePlugin:
    """One resource that the node hands out.

    Attributes:
        prefix: what the ids of its tickets begin with.
        per_gpu: how many tickets stand for one GPU.
    """

    plugin: PluginServicer
    registration: Registration
    prefix: str
    per_gpu: int

    def publish(self, view: NodeView) -> None:
        """Tell the kubelet what there is at this moment."""
        self.plugin.publish(self.tickets(view))

    def tickets(self, view: NodeView) -> tuple[tickets.Ticket, ...]:
        """All tickets of the resource, with those of failed GPUs that nobody holds marked."""
        gpus = tickets.gpus(view.devices.values())
        live = holders.live_records(view)
        unusable = tickets.unusable(
            gpus,
            (share.uuid for record in live for share in record.devices if self._uses(record)),
            tickets_per_gpu=self.per_gpu,
        )
        return tickets.grade(
            tickets.issue(self.prefix, len(gpus) * self.per_gpu),
            held={each for record in live for each in record.tickets},
            unusable=unusable,
        )

    def _uses(self, record: Record) -> bool:
        """Whether a record's tickets are of this resource."""
        whole = all(share.whole for share in record.devices)
        return whole == (self.plugin.resource == names.GPU)
