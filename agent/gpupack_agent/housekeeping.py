# SPDX-License-Identifier: Apache-2.0
"""The periodic work: remove specs of dead pods, publish device tokens, write the sign of life."""

import asyncio
import dataclasses
import logging
import pathlib
from collections.abc import Iterable

from gpupack_agent import holders, liveness
from gpupack_agent.device_plugin import DevicePlugin
from gpupack_agent.errors import CdiUnwritable
from gpupack_agent.holders import NodeView
from gpupack_agent.identity import ContainerFinder
from gpupack_agent.mps.excess import limited
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.prestart import NodeState

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Housekeeping:
    """The periodic work of the agent, with the objects that it keeps up to date."""

    node: NodeState
    container_finder: ContainerFinder
    device_plugins: Iterable[DevicePlugin]
    node_mode: NodeMode
    probe_file: pathlib.Path
    mps: MpsFolder | None = None

    async def run(self) -> None:
        """Do all of it every second, until cancelled."""
        while True:
            self.round()
            await asyncio.sleep(ROUND_SECONDS)

    def round(self) -> None:
        """Do all of it once."""
        view = self.node.observe()
        self._remove_dead_specs(view)
        if self.mps:
            self._request_mps(self.mps, view)
        self.container_finder.retain(view.pods.keys())
        for device_plugin in self.device_plugins:
            device_plugin.publish(view)
        liveness.write(self.probe_file, registered=self._is_registered())

    def _request_mps(self, mps: MpsFolder, view: NodeView) -> None:
        """Request MPS for the GPUs of which pods hold limited shares, and for no others."""
        held = {share.uuid for _, share in limited(holders.live_records(view))}
        try:
            for uuid in held - mps.requested():
                mps.request(uuid)
            mps.retain(held)
        except OSError as error:
            log.warning("cannot write the requests for MPS daemons: %s", error)

    def _is_registered(self) -> bool:
        """Tell whether all plugins are registered; on an observed node none needs to be."""
        if self.node_mode.mode == "observed":
            return True
        return all(device_plugin.registration.complete for device_plugin in self.device_plugins)

    def _remove_dead_specs(self, view: NodeView) -> None:
        """Remove the specs of dead pods; retry later the removals that fail, which do no harm."""
        for record in view.records:
            if holders.is_live(record.uid, view):
                continue
            try:
                self.node.specs.remove(record)
            except CdiUnwritable as error:
                log.warning("%s", error)
            else:
                log.info("pod %s (%s) has ended; its CDI spec is removed", record.title, record.uid)
