# SPDX-License-Identifier: Apache-2.0
"""Once a second: collect what dead pods left, tell the kubelet what there is, show life."""

import asyncio
import dataclasses
import logging
import pathlib
from collections.abc import Iterable

from gpupack_agent import holders, liveness
from gpupack_agent.device_plugin import DevicePlugin
from gpupack_agent.errors import CdiUnwritable
from gpupack_agent.holders import NodeView
from gpupack_agent.identity import Identities
from gpupack_agent.mps.excess import limited
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.prestart import NodeState

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Housekeeping:
    """What is kept in order."""

    node: NodeState
    identities: Identities
    device_plugins: Iterable[DevicePlugin]
    node_mode: NodeMode
    probe_file: pathlib.Path
    mps: MpsFolder | None = None

    async def run(self) -> None:
        """Do it every second, until cancelled."""
        while True:
            self.round()
            await asyncio.sleep(ROUND_SECONDS)

    def round(self) -> None:
        """Do everything once."""
        view = self.node.observe()
        self._collect(view)
        if self.mps:
            self._want(self.mps, view)
        self.identities.retain(view.pods.keys())
        for device_plugin in self.device_plugins:
            device_plugin.publish(view)
        liveness.write(self.probe_file, registered=self._is_registered())

    def _want(self, mps: MpsFolder, view: NodeView) -> None:
        """Have MPS for the GPUs of which limited shares are held, and for no others."""
        held = {share.uuid for _, share in limited(holders.live_records(view))}
        try:
            for uuid in held - mps.wanted():
                mps.want(uuid)
            mps.retain(held)
        except OSError as error:
            log.warning("what is wanted of MPS cannot be written: %s", error)

    def _is_registered(self) -> bool:
        """On an observed node nothing is to be registered."""
        if self.node_mode.mode == "observed":
            return True
        return all(device_plugin.registration.complete for device_plugin in self.device_plugins)

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
