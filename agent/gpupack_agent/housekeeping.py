# SPDX-License-Identifier: Apache-2.0
"""Once a second: collect what dead pods left, tell the kubelet what there is, show life."""

import asyncio
import dataclasses
import logging
import pathlib

from gpupack_agent import holders, probe
from gpupack_agent.desk import Desk
from gpupack_agent.errors import CdiUnwritable
from gpupack_agent.holders import NodeView
from gpupack_agent.identity import Identities
from gpupack_agent.prestart import Node
from gpupack_agent.tenure import Tenure

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Household:
    """What is kept in order."""

    node: Node
    identities: Identities
    desks: tuple[Desk, ...]
    tenure: Tenure
    probe_file: pathlib.Path

    async def run(self) -> None:
        """Keep house until cancelled."""
        while True:
            self.round()
            await asyncio.sleep(ROUND_SECONDS)

    def round(self) -> None:
        """Do everything once."""
        view = self.node.observe()
        self._collect(view)
        self.identities.retain(view.pods.keys())
        for desk in self.desks:
            desk.publish(view)
        probe.leave(self.probe_file, probe.Sign(registered=self._is_registered()))

    def _is_registered(self) -> bool:
        """On an observed node nothing is to be registered."""
        if self.tenure.mode == "observed":
            return True
        return all(desk.registration.complete for desk in self.desks)

    def _collect(self, view: NodeView) -> None:
        """Remove the specs of dead pods. An unremovable one is only untidy: it is tried again."""
        for record in view.records:
            if holders.is_live(record.uid, view):
                continue
            try:
                self.node.specs.remove(record)
            except CdiUnwritable as error:
                log.warning("%s", error)
            else:
                log.info("pod %s (%s) is gone", record.title, record.uid)
