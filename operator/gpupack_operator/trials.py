# SPDX-License-Identifier: Apache-2.0
"""The GPUJobs by which GPUs are tried, as the API server has them; makes and deletes them.

They are jobs like any other: the operator that makes them also runs them, and they wait in the
queue. Their namespace alone makes them what they are.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance
from gpupack_crds.kinds import GPUJOBS, GpuJob, GpuNode
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_operator.decision import acceptance
from gpupack_operator.decision.acceptance import Trial
from gpupack_operator.manifests import acceptance as manifests
from gpupack_operator.metrics import Metrics

log = logging.getLogger(__name__)

TRIALS: Final[tuple[Trial, ...]] = ("burn-in", "all-reduce")


class Trials:
    """A reflector's store of the acceptance namespace's GPUJobs.

    Args:
        api: where they are.
        rules: how GPUs are tried.
        changed: called with the name of a node of whose jobs one changed.
        metrics: counts those that ended.
    """

    def __init__(
        self, api: Api, rules: Acceptance, changed: Callable[[str], None], metrics: Metrics
    ) -> None:
        self._api, self._rules, self._changed, self._metrics = api, rules, changed, metrics
        self._jobs: dict[str, GpuJob] = {}
        self.listed = False
        """Whether it is known what there is."""

    def replace(self, items: list[GpuJob]) -> None:
        """These are all."""
        nodes = {*map(_node_of, self._jobs.values()), *map(_node_of, items)}
        self._jobs = {item.metadata.name: item for item in items}
        self.listed = True
        for node in nodes:
            self._changed(node)

    def upsert(self, item: GpuJob) -> None:
        """A job appeared or changed."""
        before = self._jobs.get(item.metadata.name)
        if item.status.finished and before is not None and not before.status.finished:
            self._metrics.burn_in_ended(passed=item.status.phase == "Succeeded")
        self._jobs[item.metadata.name] = item
        self._changed(_node_of(item))

    def remove(self, item: GpuJob) -> None:
        """A job is gone."""
        self._jobs.pop(item.metadata.name, None)
        self._changed(_node_of(item))

    def of(self, node: str) -> Mapping[Trial, GpuJob]:
        """The jobs of a node."""
        named = ((trial, self._jobs.get(manifests.job_name(node, trial))) for trial in TRIALS)
        return {trial: job for trial, job in named if job is not None}

    def strays(self, nodes: Mapping[str, GpuNode]) -> Iterator[GpuJob]:
        """Jobs that have not ended and are about none of these nodes."""
        for job in self._jobs.values():
            if not job.status.finished and not _goes(job) and _node_of(job) not in nodes:
                yield job

    async def keep(self, node: GpuNode) -> None:
        """Make the jobs that are wanted on the node, delete those that are not.

        Raises:
            KubeError: the API server refused.
        """
        jobs = self.of(node.metadata.name)
        for trial in TRIALS:
            wanted, job = acceptance.size(node, trial), jobs.get(trial)
            if job is None and wanted:
                await self._make(node, trial)
            elif job is not None and not _goes(job) and acceptance.is_over(job, trial, wanted):
                await self.delete(job)

    async def delete(self, job: GpuJob) -> None:
        """Delete one, wherever it stands.

        Raises:
            KubeError: the API server refused.
        """
        meta = job.metadata
        try:
            await self._api.delete(GPUJOBS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            return

    async def _make(self, node: GpuNode, trial: Trial) -> None:
        waiting = set(acceptance.untried(node))
        whole = [each for each in node.status.devices if not each.mig_parent]
        devices = [each for each in whole if each.uuid in waiting] if trial == "burn-in" else whole
        body = manifests.gpujob(
            node.metadata.name,
            trial,
            devices,
            seconds=self._rules.seconds,
            args=self._rules.args,
        )
        try:
            await self._api.create(GPUJOBS, body, namespace=names.ACCEPTANCE_NAMESPACE)
        except errors.AlreadyExists:
            return
        log.info("%s of %d GPUs of node %s", trial, len(devices), node.metadata.name)


def _goes(job: GpuJob) -> bool:
    return job.metadata.deletion_timestamp is not None


def _node_of(job: GpuJob) -> str:
    return job.metadata.annotations.get(names.ACCEPTANCE_ANNOTATION, "")
