# SPDX-License-Identifier: Apache-2.0
"""Writer of the GPUs in quarantine, as `decision.quarantine` decides, and of their tests.

Results of burn-ins are written before their consequences: a new leader in between decides the same.
Only GPUNodes that need a decision are kept in memory: thousands do not.
"""

import asyncio
import collections
import datetime as dt
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard

import msgspec

from gpupack_crds.gpunode import Quarantine
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.events import About, EventWriter, Reporter, Said
from gpupack_kubeclient.objects import ObjectMeta
from gpupack_operator.acceptance_tests import AcceptanceTests
from gpupack_operator.decision import acceptance
from gpupack_operator.decision.quarantine import Rules, decide_entries, needs_decision
from gpupack_operator.metrics import Metrics
from gpupack_operator.removed_gpus import RemovedGpus

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
"""Delay after a failed write."""
MAX_WRITES: Final = 20
"""Largest number of writes in one pass."""
EVENTS_NAMESPACE: Final = "default"
"""Namespace of events about cluster-scoped objects."""


class Quarantines:
    """Reflector's store, and the task that writes.

    Args:
        api: the API server with the GPUNodes.
        reporter: name that events about them carry.
        rules: settings of the decisions.
        now: returns the API server's time.
        metrics: counts burn-ins.

    Attributes:
        acceptance_tests: the jobs that test GPUs; None: GPUs are not tested.
    """

    def __init__(
        self,
        api: Api,
        *,
        reporter: str,
        rules: Rules,
        now: Callable[[], dt.datetime],
        metrics: Metrics,
    ) -> None:
        self._api, self._rules, self._now = api, rules, now
        self._events = EventWriter(api, Reporter("gpupack.dev/operator", reporter, "Quarantine"))
        self._nodes: dict[str, GpuNode] = {}
        self._check_at: dict[str, dt.datetime] = {}
        """Time of the next check by GPUNode; one without a time is checked only after it changes.
        """
        self._removed = RemovedGpus()
        self._listed = False
        tried = rules.acceptance
        self.acceptance_tests = (
            AcceptanceTests(api, tried, self._jobs_changed, metrics) if tried else None
        )

    def phases(self) -> Mapping[str, int]:
        """Return the number of GPUs in quarantine, by phase."""
        entries = (each for node in self._nodes.values() for each in node.spec.quarantine)
        return collections.Counter(each.phase for each in entries)

    def replace(self, items: list[GpuNode]) -> None:
        """Replace all GPUNodes by these."""
        uids = {item.metadata.name: item.metadata.uid for item in items}
        for name, node in list(self._nodes.items()):
            if uids.get(name) != node.metadata.uid:
                self.remove(node)
        self._nodes.clear()
        self._check_at.clear()
        self._rules.fleet.clear()
        for item in items:
            self.upsert(item)
        self._listed = True

    def upsert(self, item: GpuNode) -> None:
        """Store a new or changed GPUNode."""
        self._rules.fleet.put(item)
        self._removed.update(item)
        if self._was_quarantined(item) or needs_decision(item, self._rules):
            self._nodes[item.metadata.name] = item
            self._check_at[item.metadata.name] = self._now()
        else:
            self._leave(item.metadata.name)

    def remove(self, item: GpuNode) -> None:
        """Remove a deleted GPUNode."""
        self._rules.fleet.remove(item.metadata.name)
        self._leave(item.metadata.name)
        self._removed.add(item)

    def _was_quarantined(self, item: GpuNode) -> bool:
        """Tell whether GPUs of the node were in quarantine when their GPUNode was deleted."""
        return bool(
            self._removed.kept(item) or (self.acceptance_tests and self._removed.repaired(item))
        )

    def _leave(self, name: str) -> None:
        """Drop a GPUNode that needs no decision."""
        self._nodes.pop(name, None)
        self._check_at.pop(name, None)

    def _jobs_changed(self, name: str) -> None:
        if name in self._nodes:
            self._check_at[name] = self._now()

    async def run(self) -> None:
        """Write in an endless loop."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.write_changes()

    async def write_changes(self) -> None:
        """Write what has changed."""
        now = self._now()
        due = [name for name, at in self._check_at.items() if at <= now]
        for name in due[:MAX_WRITES]:
            node = self._nodes.get(name)
            if node is None:
                continue
            # A change while this pass waits for answers brings the next check forward.
            self._check_at.pop(name, None)
            try:
                again_at = await self._write_node(node, now)
            except (errors.NotFound, errors.Conflict):
                again_at = now + dt.timedelta(seconds=AGAIN_SECONDS)
            except errors.KubeError as error:
                log.warning("cannot update GPUNode %s: %s; trying again", name, error)
                again_at = now + dt.timedelta(seconds=AGAIN_SECONDS)
            self._check_by(name, again_at)
        await self._clear_up()

    async def _write_node(self, node: GpuNode, now: dt.datetime) -> dt.datetime | None:
        """Take the due steps; return when to check again if nothing changes until then."""
        # The watch shows the result of a write; if it does not, the write is repeated.
        soon = now + dt.timedelta(seconds=AGAIN_SECONDS)
        if await self._record(node, now):
            return soon
        repaired, kept = self._removed.repaired(node), self._removed.kept(node)
        entries, again_at = decide_entries(node, now, self._rules, repaired=repaired, kept=kept)
        if entries != node.spec.quarantine:
            await self._decide(node, entries)
            return soon
        if self._may_test(self.acceptance_tests):
            await self.acceptance_tests.create_and_delete(node)
        return again_at

    def _may_test(self, tests: AcceptanceTests | None) -> TypeGuard[AcceptanceTests]:
        """Tell whether tests may be created or deleted: all jobs and GPUNodes must be known."""
        return tests is not None and tests.listed and self._listed

    async def _clear_up(self) -> None:
        if not self._may_test(self.acceptance_tests):
            return
        for job in list(self.acceptance_tests.obsolete_jobs(self._nodes))[:MAX_WRITES]:
            try:
                await self.acceptance_tests.delete(job)
            except errors.KubeError as error:
                log.warning("cannot delete GPUJob %s: %s", job.metadata.name, error)

    async def _record(self, node: GpuNode, now: dt.datetime) -> bool:
        """Write results of burn-ins; return whether there was anything new."""
        rules, tests = self._rules.acceptance, self.acceptance_tests
        if rules is None or not self._may_test(tests):
            return False
        jobs, status = tests.of(node.metadata.name), node.status
        measured = acceptance.updated_measurements(node, jobs, rules, now)
        all_reduce = acceptance.updated_all_reduce(node, jobs, now)
        if measured == status.measured and all_reduce == status.all_reduce:
            return False
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {
                "measured": msgspec.to_builtins(measured),
                "allReduce": msgspec.to_builtins(all_reduce),
            },
        }
        await self._api.merge(GPUNODES, node.metadata.name, body, subresource="status")
        return True

    async def _decide(self, node: GpuNode, entries: tuple[Quarantine, ...]) -> None:
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"quarantine": msgspec.to_builtins(entries) or None},
        }
        await self._api.merge(GPUNODES, node.metadata.name, body)
        meta = ObjectMeta(
            name=node.metadata.name, namespace=EVENTS_NAMESPACE, uid=node.metadata.uid
        )
        for said in quarantine_events(node.spec.quarantine, entries):
            await self._events.write(About("gpupack.dev/v1beta1", "GPUNode", meta), said)

    def _check_by(self, name: str, at: dt.datetime | None) -> None:
        """Check at that time at the latest; the node may have been deleted in the meantime."""
        if at is not None and name in self._nodes:
            self._check_at[name] = min(self._check_at.get(name, at), at)


def quarantine_events(
    before: tuple[Quarantine, ...], after: tuple[Quarantine, ...]
) -> Iterator[Said]:
    """Yield the events for administrators about the change."""
    known, left = {each.gpu: each for each in before}, {each.gpu: each for each in after}
    for gpu, entry in left.items():
        if gpu in known and known[gpu].phase == entry.phase:
            continue
        match entry.phase:
            case "Quarantined":
                yield Said("Warning", "Quarantined", f"{gpu} gets no new work: {entry.cause}")
            case "Acceptance":
                yield Said("Normal", "Acceptance", f"{gpu} is tested before it is used")
            case "Slow":
                yield Said("Warning", "Slow", f"{gpu} is used last: {entry.cause}")
            case "Probation":
                yield Said("Normal", "Probation", f"{gpu} is used last for a while")
    for gpu in known.keys() - left.keys():
        yield Said("Normal", "Released", f"{gpu} is released from quarantine")
