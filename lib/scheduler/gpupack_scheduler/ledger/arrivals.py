# SPDX-License-Identifier: Apache-2.0
"""GPU requests of pods, learned as pods come and go; policies use the expected requests."""

from collections.abc import Collection

from gpupack_placement import DemandLearner, Request
from gpupack_scheduler.requests.pod_request import PodRequest


class Arrivals:
    """The reports of pods to a learner: once when first seen, and once when gone.

    Pods that run already when the extender starts count as arrivals too: after a restart they are
    the best estimate of future requests.
    """

    def __init__(self, learner: DemandLearner) -> None:
        self._learner = learner
        self._asked: dict[str, Request] = {}

    def seen(self, ask: PodRequest) -> None:
        """Report a pod that requests GPUs, pending or bound.

        A request that cannot be served teaches nothing; filter reports the reason to its owner.
        """
        if ask.request is None or ask.uid in self._asked:
            return
        self._asked[ask.uid] = ask.request
        self._learner.record_arrival(ask.request)

    def gone(self, uid: str) -> None:
        """Report that a pod is terminal or deleted."""
        request = self._asked.pop(uid, None)
        if request is not None:
            self._learner.record_departure(request)

    def only(self, uids: Collection[str]) -> None:
        """Report all known pods as gone except these."""
        for uid in sorted(self._asked.keys() - set(uids)):
            self.gone(uid)
