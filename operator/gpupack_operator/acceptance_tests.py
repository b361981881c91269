# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that test GPUs, in the API server; creates and deletes them.

They are jobs like any other: the operator that creates them also runs them, and they wait in the
queue. Only their namespace distinguishes them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance
from gpupack_crds.kinds import GPUJOBS, GpuJob, GpuNode
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_operator.decision import acceptance
from gpupack_operator.decision.acceptance import AcceptanceTest
from gpupack_operator.manifests import acceptance as manifests
from gpupack_operator.metrics import Metrics

log = logging.getLogger(__name__)

TESTS: Final[tuple[AcceptanceTest, ...]] = ("burn-in", "all-reduce")


class AcceptanceTests:
    """Reflector's store of the acceptance namespace's GPUJobs.

    Args:
        api: the API server with the jobs.
        rules: how GPUs are tested.
        changed: is called with the name of a node whose jobs changed.
        metrics: counts the jobs that ended.
    """

    def __init__(
        self, api: Api, rules: Acceptance, changed: Callable[[str], None], metrics: Metrics
    ) -> None:
        self._api, self._rules, self._changed, self._metrics = api, rules, changed, metrics
        self._jobs: dict[str, GpuJob] = {}
        self.listed = False
        """Whether the existing jobs are known."""

    def replace(self, items: list[GpuJob]) -> None:
        """Replace all jobs by these."""
        nodes = {*map(_node_of, self._jobs.values()), *map(_node_of, items)}
        self._jobs = {item.metadata.name: item for item in items}
        self.listed = True
        for node in nodes:
            self._changed(node)

    def upsert(self, item: GpuJob) -> None:
        """Store a new or changed job."""
        before = self._jobs.get(item.metadata.name)
        if item.status.finished and before is not None and not before.status.finished:
            self._metrics.count_burn_in(passed=item.status.phase == "Succeeded")
        self._jobs[item.metadata.name] = item
        self._changed(_node_of(item))

    def remove(self, item: GpuJob) -> None:
        """Remove a deleted job."""
        self._jobs.pop(item.metadata.name, None)
        self._changed(_node_of(item))

    def of(self, node: str) -> Mapping[AcceptanceTest, GpuJob]:
        """Return the jobs of a node."""
        named = ((test, self._jobs.get(manifests.job_name(node, test))) for test in TESTS)
        return {test: job for test, job in named if job is not None}

    def obsolete_jobs(self, nodes: Mapping[str, GpuNode]) -> Iterator[GpuJob]:
        """Yield the jobs that have not ended and test none of these nodes."""
        for job in self._jobs.values():
            if (
                not job.status.finished
                and not _is_being_deleted(job)
                and _node_of(job) not in nodes
            ):
                yield job

    async def create_and_delete(self, node: GpuNode) -> None:
        """Create the jobs that the node needs, and delete those that it does not need.

        Raises:
            KubeError: the API server refused.
        """
        jobs = self.of(node.metadata.name)
        for test in TESTS:
            needed, job = acceptance.gpus_to_test(node, test), jobs.get(test)
            if job is None and needed:
                await self._make(node, test)
            elif (
                job is not None
                and not _is_being_deleted(job)
                and acceptance.is_obsolete(job, test, needed)
            ):
                await self.delete(job)

    async def delete(self, job: GpuJob) -> None:
        """Delete a job, in any state.

        Raises:
            KubeError: the API server refused.
        """
        meta = job.metadata
        try:
            await self._api.delete(GPUJOBS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            return

    async def _make(self, node: GpuNode, test: AcceptanceTest) -> None:
        waiting = set(acceptance.untested_gpus(node))
        whole = [each for each in node.status.devices if not each.mig_parent]
        devices = [each for each in whole if each.uuid in waiting] if test == "burn-in" else whole
        body = manifests.gpujob(
            node.metadata.name,
            test,
            devices,
            seconds=self._rules.timeout_seconds,
            args=self._rules.args,
        )
        try:
            await self._api.create(GPUJOBS, body, namespace=names.ACCEPTANCE_NAMESPACE)
        except errors.AlreadyExists:
            return
        log.info("%s of %d GPUs of node %s", test, len(devices), node.metadata.name)


def _is_being_deleted(job: GpuJob) -> bool:
    return job.metadata.deletion_timestamp is not None


def _node_of(job: GpuJob) -> str:
    return job.metadata.annotations.get(names.ACCEPTANCE_ANNOTATION, "")
