# SPDX-License-Identifier: Apache-2.0
"""The policy of a run, and its learning.

The extender of a cluster learns in the same way: from each worker that arrives, with new prices as
soon as the learner is due. There the solver runs in the background and decisions continue with the
old prices; here its answer counts from the next decision on, so that a run does not depend on the
machine's speed. If no prices can be found, the old ones stay and a warning is logged, as there.
"""

import logging

from gpupack_placement import DecisionError, DemandForecast, DemandLearner, Policy, RequestMix
from gpupack_simulator.job import Job

log = logging.getLogger(__name__)


class Learning:
    """The policy and its learner; mutable, belongs to one engine.

    `mix`: known from the start; None: it is learned.
    """

    def __init__(self, policy: Policy, mix: RequestMix | None = None) -> None:
        self._base, self._mix = policy, mix
        self._learner = DemandLearner()
        self.policy = policy if mix is None else policy.informed(DemandForecast(mix))

    def arrived(self, job: Job) -> None:
        """Learn from an arrived job, and inform the policy when it is due."""
        for _ in range(job.workers):
            self._learner.record_arrival(job.request)
        if self._learner.due():
            self._inform()

    def departed(self, job: Job) -> None:
        """Learn from the departure of a job."""
        for _ in range(job.workers):
            self._learner.record_departure(job.request)

    def _inform(self) -> None:
        forecast = self._learner.take_forecast()
        if self._mix is not None:
            forecast = DemandForecast(self._mix, forecast.churn)
        try:
            self.policy = self.policy.informed(forecast)
        except DecisionError as error:
            log.warning("policy %s goes on with what it knew: %s", self._base.name, error)
