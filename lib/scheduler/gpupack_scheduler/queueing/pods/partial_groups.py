# SPDX-License-Identifier: Apache-2.0
"""Pod groups of which only a part was started, because the process that started them ended.

Its successor starts the rest first. If the rest finds no places in time, a node was lost or a quota
lowered in between: the part is evicted, so that the group waits as a whole again.
"""

from collections.abc import Iterator
from typing import Final

from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.pod_groups import PodGroups
from gpupack_scheduler.queueing.pods.conditions import Eviction

PATIENCE_SECONDS: Final = 120.0
"""Time within which the rest must start once this process has found the part."""

REASON: Final = "PodGroupIncomplete"

_WHY: Final = "since other members of its pod group could not start with it"


def evictions(groups: PodGroups, ledger: Ledger, now: float) -> Iterator[Eviction]:
    """Yield members that have run, or held GPUs, without the others for too long."""
    for part, since in groups.parts():
        for uid in part.members if now - since > PATIENCE_SECONDS else ():
            claim, let_in = ledger.claims.pods.get(uid), ledger.pods.let_in.get(uid)
            if claim is not None and not claim.leaves:
                yield Eviction(uid, claim.namespace, claim.name, REASON, _WHY)
            elif claim is None and let_in is not None:
                yield Eviction(uid, *let_in.key, REASON, _WHY)
