# SPDX-License-Identifier: Apache-2.0
"""What pods ask of GPUs, learned as they come and go: policies pack by what is likely to come."""

from collections.abc import Collection

import gpupack_core as core
from gpupack_scheduling.asks.pod_ask import PodAsk


class Arrivals:
    """Tells a learner of each pod once when it is first seen, and once when it is gone.

    Pods that run already when the extender starts count as arrivals too: after a restart they are
    the best guess at what will come.
    """

    def __init__(self, learner: core.Learner) -> None:
        self._learner = learner
        self._asked: dict[str, core.Request] = {}

    def seen(self, ask: PodAsk) -> None:
        """A pod that asks for GPUs is there, waiting or bound.

        What cannot be served teaches nothing; filter tells the pod's owner.
        """
        if ask.request is None or ask.uid in self._asked:
            return
        self._asked[ask.uid] = ask.request
        self._learner.arrived(ask.request)

    def gone(self, uid: str) -> None:
        """A pod is terminal or deleted."""
        request = self._asked.pop(uid, None)
        if request is not None:
            self._learner.departed(request)

    def only(self, uids: Collection[str]) -> None:
        """These pods are all there are."""
        for uid in sorted(self._asked.keys() - set(uids)):
            self.gone(uid)
