# SPDX-License-Identifier: Apache-2.0
"""The policy of a run, and what it learns on the way.

As in the cluster, where the extender learns: from each worker that arrives, with new prices as soon
as the learner says that they are due. There the solver runs beside the decisions and they go on
with the old prices meanwhile; here its answer counts from the next decision on, so that a run does
not depend on how fast the machine is. Where no prices can be found the old ones stay, and a warning
says so, as there.
"""

import logging

from gpupack_core import CoreError, Learner, Mix, Outlook, Policy
from gpupack_simulator.job import Job

log = logging.getLogger(__name__)


class Learning:
    """Mutable; belongs to one engine. `mix`: known from the start; None: it is learned."""

    def __init__(self, policy: Policy, mix: Mix | None = None) -> None:
        self._base, self._mix = policy, mix
        self._learner = Learner()
        self.policy = policy if mix is None else policy.informed(Outlook(mix))

    def arrived(self, job: Job) -> None:
        """Learn from it, and now and then inform the policy."""
        for _ in range(job.workers):
            self._learner.arrived(job.request)
        if self._learner.due():
            self._inform()

    @property
    def due_in(self) -> int:
        """After so many more workers the policy is informed."""
        return self._learner.due_in

    def departed(self, job: Job) -> None:
        """It will not come back."""
        for _ in range(job.workers):
            self._learner.departed(job.request)

    def _inform(self) -> None:
        outlook = self._learner.outlook()
        if self._mix is not None:
            outlook = Outlook(self._mix, outlook.churn)
        try:
            self.policy = self.policy.informed(outlook)
        except CoreError as error:
            log.warning("policy %s goes on with what it knew: %s", self._base.name, error)
