# SPDX-License-Identifier: Apache-2.0
"""The known state of this machine: its ledger at the last read."""

import asyncio
import logging

import gpupack_placement as core
from gpupack.errors import GpupackError
from gpupack.host.books import Books
from gpupack.host.ledger import HostLedger
from gpupack_apiserver.history import Sample, passed
from gpupack_apiserver.node_views import NodeViews
from gpupack_scheduler.errors import NotReady

log = logging.getLogger(__name__)

NOT_LOOKED: str = "the GPUs have not been read yet"


class Machine:
    """The machine's GPUs with their holders.

    Args:
        ledger: ledger of this machine.
        policy: policy that chooses the GPU of a share.
        seconds: interval of reads without calls.
    """

    def __init__(self, ledger: HostLedger, policy: core.Policy, *, seconds: float) -> None:
        self._ledger, self._policy, self._seconds = ledger, policy, seconds
        self._looking = asyncio.Lock()
        self._missing = NOT_LOOKED
        self._books: Books | None = None
        self.cluster = core.Cluster()
        self.views = NodeViews(self)

    @property
    def books(self) -> Books:
        """The books at the last read.

        Raises:
            NotReady: no read has succeeded.
        """
        self.require_fresh()
        assert self._books is not None  # noqa: S101 - fresh
        return self._books

    def simulated(self, _: str) -> frozenset[str]:
        """Return UUIDs of GPUs that do not exist: all or none."""
        inventory = self._books.inventory if self._books else None
        devices = inventory.devices if inventory and inventory.simulated else ()
        return frozenset(str(each.uuid) for each in devices)

    def policy(self) -> core.Policy:
        """Return the policy that chooses the GPU of a share."""
        return self._policy

    def missing(self) -> str:
        """Return why the last read of the ledger failed; empty: it succeeded."""
        return self._missing

    def require_fresh(self) -> None:
        """Refuse where the last read failed; raises NotReady."""
        if self._missing:
            raise NotReady(f"this machine's state is not known: {self._missing}")

    async def look(self) -> None:
        """Read what is held now; one read at a time asks the driver.

        Raises:
            NotReady: driver or ledger do not answer.
        """
        async with self._looking:
            try:
                books = await asyncio.to_thread(self._ledger.books)
                cluster = books.cluster()
            except (GpupackError, core.DecisionError) as error:
                self._missing = str(error)
            else:
                self._missing, self._books = "", books
                self.cluster = cluster
                self.views = NodeViews(self)
        self.require_fresh()

    async def run(self) -> None:
        """Read now and then, so that health and history are recent; without end."""
        while True:
            try:
                await self.look()
            except NotReady as error:
                log.warning("%s", error)
            await passed(lambda: self._seconds)

    def sample(self) -> Sample | None:
        """Return figures of the last read; None: it failed. A machine's jobs are its holders."""
        if self._missing or self._books is None:
            return None
        kinds = [each.kind for each in self._books.records.values()]
        return Sample.now(
            self.views.totals(),
            running_jobs=kinds.count("holds"),
            waiting_jobs=kinds.count("waits"),
        )
