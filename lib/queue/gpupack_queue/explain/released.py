# SPDX-License-Identifier: Apache-2.0
"""The check that GPUs become free at one moment, so that no other job takes some before."""

from collections import Counter
from collections.abc import Iterable

from gpupack_placement.cluster import Cluster
from gpupack_placement.placement import Placement


def is_released_at_once(
    cluster: Cluster, needed: Iterable[Placement], released: Iterable[Placement]
) -> bool:
    """Tell whether these placements fit where others are released, and need nothing else.

    Args:
        cluster: in which the released placements still hold what they have.
        needed: the placements of one job.
        released: what ends at the moment in question.
    """
    needed = tuple(needed)
    uuids = {grant.uuid for place in needed for grant in place.devices}
    for node in {place.node for place in needed}:
        # A job that joins a shared GPU also decides which jobs may share it afterwards.
        free = cluster.free_devices(node)
        if any(each.milli > 0 for each in free if each.uuid in uuids):
            return False
    return _amounts(needed) <= _amounts(released)


def _amounts(placements: Iterable[Placement]) -> Counter[tuple[str, str]]:
    """Return the amounts, summed by node or device and by resource."""
    found = Counter[tuple[str, str]]()
    for place in placements:
        found[place.node, "CPU"] += place.cpu
        found[place.node, "memory"] += place.memory
        for name, amount in place.extended:
            found[place.node, name] += amount
        for grant in place.devices:
            found[grant.uuid, "GPU"] += grant.milli
            found[grant.uuid, "GPU memory"] += grant.memory
    return found
