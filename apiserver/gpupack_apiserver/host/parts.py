# SPDX-License-Identifier: Apache-2.0
"""The parts that answer the calls of one machine, and their authentication."""

import asyncio
import contextlib
import dataclasses
import http
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from litestar.datastructures import State
from prometheus_client import CollectorRegistry

from gpupack.backend import Patience
from gpupack.host.record import Record, placement_of
from gpupack.host.reservations import Reservations, reservations
from gpupack.process_setup import SetupInvalid
from gpupack.training_config import TrainingGPUConfig
from gpupack_apiserver.errors import ClusterNeeded, no_allocation
from gpupack_apiserver.history import History
from gpupack_apiserver.host.machine import Machine
from gpupack_apiserver.host.token import is_shown
from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.placed_process import PlacedProcess, visible_share
from gpupack_apiserver.routes.parts import Call, Plan, WorkerRef, caller_of
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_placement import DeviceUuid, Gang, plan_gang
from gpupack_scheduler.ledger import claims

NAMESPACE: Final = "this-machine"
"""Namespace of all allocations, as in `this-machine/NAME`."""

OWNER: Final = User(username="owner-of-the-token")

MAX_WAITING: Final = 16
"""Maximum allocations that wait at once, each of which has a thread."""


class AllocationThreads:
    """Threads that wait for GPUs, separate from those that read the holders."""

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._threads = ThreadPoolExecutor(MAX_WAITING, "allocation")
        self._slots = asyncio.Semaphore(MAX_WAITING)
        self._stop = threading.Event()

    async def make(
        self, name: str, config: TrainingGPUConfig, *, wait_seconds: float, hold_seconds: int
    ) -> Record:
        """Reserve GPUs; raises as `Reservations.make`, and Denied where too many calls wait."""
        patience = Patience(wait_seconds, hold_seconds, self._stop)
        async with self._slot():
            loop = asyncio.get_running_loop()
            made = loop.run_in_executor(
                self._threads, self._reservations.make, name, config, patience
            )
            return await asyncio.shield(made)

    async def cancel(self, name: str) -> None:
        """Release GPUs; raises as `Reservations.cancel`."""
        await asyncio.to_thread(self._reservations.cancel, name)

    def close(self) -> None:
        """End all waits."""
        self._stop.set()
        self._threads.shutdown()

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._slots.locked():
            raise Denied(
                f"{MAX_WAITING} allocations wait already; wait a second",
                status=http.HTTPStatus.TOO_MANY_REQUESTS,
            )
        async with self._slots:
            yield


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """The implementation of SharedParts for one machine."""

    model: Machine
    history: History
    allocations: AllocationThreads
    token: str
    registry: CollectorRegistry = dataclasses.field(default_factory=CollectorRegistry)

    @property
    def nodes(self) -> NodeViews:
        """Views of the last read."""
        return self.model.views

    async def require_metrics_access(self, call: Call) -> None:
        """Refuse callers without the token; raises Denied."""
        self._require_token(call)

    async def require_viewer(self, call: Call) -> User:
        """Return the caller, after a read of the ledger; raises Denied, NotReady."""
        self._require_token(call)
        await self.model.read()
        return OWNER

    async def plan(self, _: User, gang: Gang) -> Plan:
        """Return where a gang would be placed now: on one node at once, however many workers."""
        return plan_gang(self.model.cluster, gang, self.model.policy())

    async def find_process(self, call: Call, worker: WorkerRef) -> PlacedProcess:
        """Return a process of an allocation; raises Denied, NotReady, Missing, SetupInvalid."""
        await self.require_viewer(call)
        if worker.job:
            raise ClusterNeeded("a GPUJob needs a cluster; name an allocation of this machine")
        if worker.worker:
            raise SetupInvalid("worker", worker.worker, "give 0: this machine is the only one")
        namespace, _, name = worker.allocation.partition("/")
        record, node = self.find_reservation(namespace, name), self.model.snapshot.node
        visible = tuple(
            visible_share(share, self.model.cluster)
            for share in claims.shares(placement_of(record, node))
        )
        return PlacedProcess(visible, (str(node),), ranks_before=0, ranks=len(visible))

    def find_reservation(self, namespace: str, name: str) -> Record:
        """Return a reservation at the last read; raises Missing, NotReady."""
        found = reservations(self.model.snapshot.records).get(name)
        if found is None or namespace != NAMESPACE:
            raise no_allocation(namespace, name)
        return found

    def indices(self) -> dict[DeviceUuid, int]:
        """Return indices of this machine's GPUs at the last read; raises NotReady."""
        return {each.uuid: each.index for each in self.model.snapshot.inventory.devices}

    def _require_token(self, call: Call) -> None:
        if not is_shown(caller_of(call).authorization, self.token):
            raise Denied(
                "send this machine's token, as in `Authorization: Bearer TOKEN`; "
                "`python -m gpupack_apiserver.host token` prints it",
                status=http.HTTPStatus.UNAUTHORIZED,
            )


def host_parts_of(state: State) -> HostParts:
    """Return the parts that the application was built with."""
    found: HostParts = state["parts"]
    return found
