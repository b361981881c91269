# SPDX-License-Identifier: Apache-2.0
"""Which devices are asked for by a request's name for them, and which a share may join.

Most clusters have one name, and most nodes: a device is looked at for its own only on nodes where
there are several.
"""

from dataclasses import replace

import numpy as np

from gpupack_core.arrays import ABSENT, MIXED, Arrays, BoolArray
from gpupack_core.cluster import Cluster
from gpupack_core.memo import ALL, Rows
from gpupack_core.request import Request


def serving_nodes(cluster: Cluster, request: Request, at: Rows = ALL) -> BoolArray:
    """Rows with a device of the asked resource; all of them, if no device is asked for."""
    a = cluster.arrays
    if not cluster.resources.has_others(request.resource) or not request.needs_gpu:
        return a.present[at]
    serves = _by_number(cluster, request)
    found: BoolArray = np.append(serves, False)[a.node_resource[at]]
    several = (a.node_resource[at] == MIXED).nonzero()[0]
    if len(several):
        found[several] = serves[a.resource[at][several]].any(axis=1)
    return found


def serving_devices(cluster: Cluster, request: Request, at: int | Rows = ALL) -> BoolArray | None:
    """Devices of the asked resource, on nodes that have any; None: all devices there are."""
    if not cluster.resources.has_others(request.resource) or not request.needs_gpu:
        return None
    a = cluster.arrays
    if not np.any(a.node_resource[at] == MIXED):
        return None
    return _by_number(cluster, request)[a.resource[at]]


def only_sound(cluster: Cluster, request: Request) -> Request | None:
    """The same request for devices that are not degraded; None: it makes no difference here."""
    if request.sound or not request.needs_gpu or not cluster.worn:
        return None
    return replace(request, sound=True)


def seen_for(cluster: Cluster, request: Request) -> Arrays:
    """The numbers by which nodes are compared for a request: of its GPUs and no others.

    A request that takes nothing of GPUs sees all of them. Of GPUs that another group shares, a
    share sees no room for it.
    """
    a, joinable = _of_resource(cluster, request), joinable_devices(cluster, request)
    return a if joinable is None else replace(a, free_shares=a.free_shares * joinable)


def joinable_devices(cluster: Cluster, request: Request, at: int | Rows = ALL) -> BoolArray | None:
    """Devices of which no other group has shares; None: no share is asked, or there is no other."""
    if request.share is None or not cluster.groups.has_others(request.share.group):
        return None
    number, there = cluster.groups.number(request.share.group), cluster.arrays.group[at]
    free: BoolArray = there == ABSENT
    return free if number is None else free | (there == number)


def _of_resource(cluster: Cluster, request: Request) -> Arrays:
    a = cluster.arrays
    if not cluster.resources.has_others(request.resource) or not request.milli:
        return a
    number = cluster.resources.number(request.resource)
    if number is None or not np.any(a.node_resource == MIXED):
        return a
    return cluster.narrowed.of(a, number)


def _by_number(cluster: Cluster, request: Request) -> BoolArray:
    """One truth value per number of a resource; the last one stands for ABSENT."""
    serves = cluster.resources.where(lambda resource: resource == request.resource)
    return np.append(serves, False)
