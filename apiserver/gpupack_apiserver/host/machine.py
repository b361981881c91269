# SPDX-License-Identifier: Apache-2.0
"""The known state of this machine: its ledger at the last read."""

import asyncio
import logging

from gpupack.errors import GpupackError
from gpupack.host.ledger import HostLedger
from gpupack.host.snapshot import HostSnapshot
from gpupack_apiserver.history import sample_of, sleep_interval
from gpupack_apiserver.node_views import NodeViews
from gpupack_placement import Cluster, DecisionError, Policy
from gpupack_restapi.nodes import Sample
from gpupack_scheduler.errors import NotReady

log = logging.getLogger(__name__)

NOT_READ: str = "the GPUs have not been read yet"


class Machine:
    """The machine's GPUs with their holders.

    Args:
        ledger: ledger of this machine.
        policy: policy that chooses the GPU of a share.
        seconds: interval of reads without calls.
    """

    def __init__(self, ledger: HostLedger, policy: Policy, *, seconds: float) -> None:
        self._ledger, self._policy, self._seconds = ledger, policy, seconds
        self._read_lock = asyncio.Lock()
        self._missing = NOT_READ
        self._snapshot: HostSnapshot | None = None
        self.cluster = Cluster()
        self.views = NodeViews(self)

    @property
    def snapshot(self) -> HostSnapshot:
        """The ledger's snapshot at the last read.

        Raises:
            NotReady: no read has succeeded.
        """
        self.require_fresh()
        assert self._snapshot is not None  # noqa: S101 - fresh
        return self._snapshot

    def simulated(self, _: str) -> frozenset[str]:
        """Return UUIDs of GPUs that do not exist: all or none."""
        inventory = self._snapshot.inventory if self._snapshot else None
        devices = inventory.devices if inventory and inventory.simulated else ()
        return frozenset(str(each.uuid) for each in devices)

    def policy(self) -> Policy:
        """Return the policy that chooses the GPU of a share."""
        return self._policy

    def missing(self) -> str:
        """Return why the last read of the ledger failed; empty: it succeeded."""
        return self._missing

    def require_fresh(self) -> None:
        """Refuse where the last read failed; raises NotReady."""
        if self._missing:
            raise NotReady(f"this machine's state is not known: {self._missing}")

    async def read(self) -> None:
        """Read what is held now; reads do not run concurrently.

        Raises:
            NotReady: the driver or the ledger cannot be read.
        """
        async with self._read_lock:
            try:
                snapshot = await asyncio.to_thread(self._ledger.snapshot)
                cluster = snapshot.cluster()
            except (GpupackError, DecisionError) as error:
                self._missing = str(error)
            else:
                self._missing, self._snapshot = "", snapshot
                self.cluster = cluster
                self.views = NodeViews(self)
        self.require_fresh()

    async def run(self) -> None:
        """Read periodically, so that health and history are recent; without end."""
        while True:
            try:
                await self.read()
            except NotReady as error:
                log.warning("%s", error)
            await sleep_interval(lambda: self._seconds)

    def sample(self) -> Sample | None:
        """Return figures of the last read; None: it failed. A machine's jobs are its holders."""
        if self._missing or self._snapshot is None:
            return None
        kinds = [each.kind for each in self._snapshot.records.values()]
        return sample_of(
            self.views.totals(),
            running_jobs=kinds.count("holds"),
            waiting_jobs=kinds.count("waits"),
        )
