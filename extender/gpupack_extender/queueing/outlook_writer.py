# SPDX-License-Identifier: Apache-2.0
"""Makes known what was learned of the requests to come, while this process decides.

Its own policies go by it when the watch shows it (gpupack_scheduling.outlooks). Where it cannot be
written decisions go on with what was known last.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

import gpupack_core as core
from gpupack_crds.kinds import GPUCOHORTS, status_body
from gpupack_crds.outlook import LearnedOutlook
from gpupack_extender.looking import look_forever
from gpupack_extender.queueing import cluster_cohort
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_scheduling import outlooks
from gpupack_scheduling.queueing.quotas import QuotaStores

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0


class OutlookWriter:
    """A task beside the queue's.

    Args:
        api: where it is written.
        stores: what the watch shows of GPUCohorts.
        learner: what pods have asked for so far.
        can_serve: whether some node could serve a request if it were empty.
        decides: whether this process does.
    """

    def __init__(
        self,
        api: Api,
        stores: QuotaStores,
        learner: core.Learner,
        *,
        can_serve: Callable[[core.Request], bool],
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._stores, self._learner = api, stores, learner
        self._can_serve, self._decides = can_serve, decides
        self._unwritten: LearnedOutlook | None = None

    async def run(self) -> None:
        """Look for ever; a write that failed is tried again at the next look."""
        await look_forever(self.look, seconds=LOOK_SECONDS, decides=self._decides)

    async def look(self) -> None:
        """Write an outlook that is due."""
        if self._learner.due():
            found = await outlooks.servable(self._learner.outlook(), self._can_serve)
            self._unwritten = outlooks.written(found)
        if self._unwritten is None:
            return
        try:
            await self._write(self._unwritten)
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("the outlook is written later: %s", error)
        except errors.KubeError as error:
            log.warning("cannot write the outlook: %s", error)

    async def _write(self, outlook: LearnedOutlook) -> None:
        cohort = cluster_cohort.shown(self._stores)
        if cohort is None:
            await cluster_cohort.make(self._api)
            return
        status = msgspec.structs.replace(cohort.status, outlook=outlook)
        if status != cohort.status:
            body = status_body("GPUCohort", cohort.metadata, status)
            await self._api.replace(GPUCOHORTS, cohort.metadata.name, body, subresource="status")
        self._unwritten = None
