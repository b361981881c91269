# SPDX-License-Identifier: Apache-2.0
"""The devices that serve a request's resource name, and those that a share may join.

Most clusters and most nodes have one resource name: single devices are checked only on nodes with
several names.
"""

from dataclasses import replace

import numpy as np

from gpupack_placement.arrays import ABSENT, MIXED, Arrays, BoolArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.memo import ALL, Rows
from gpupack_placement.request import Request


def serving_nodes(cluster: Cluster, request: Request, at: Rows = ALL) -> BoolArray:
    """Return the rows with a device of the requested resource; all, if no device is requested."""
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
    """Return the devices of the requested resource, on nodes that have any; None: all devices."""
    if not cluster.resources.has_others(request.resource) or not request.needs_gpu:
        return None
    a = cluster.arrays
    if not np.any(a.node_resource[at] == MIXED):
        return None
    return _by_number(cluster, request)[a.resource[at]]


def with_healthy_only(cluster: Cluster, request: Request) -> Request | None:
    """Return the request for devices that are not degraded; None: that makes no difference."""
    if request.healthy_only or not request.needs_gpu or not cluster.worn:
        return None
    return replace(request, healthy_only=True)


def view_for(cluster: Cluster, request: Request) -> Arrays:
    """Return the figures by which nodes are compared for a request: only of GPUs that serve it.

    A request that takes nothing of GPUs sees all of them. A share sees no free slots on GPUs that
    another group shares.
    """
    a, joinable = _of_resource(cluster, request), joinable_devices(cluster, request)
    return a if joinable is None else replace(a, free_shares=a.free_shares * joinable)


def joinable_devices(cluster: Cluster, request: Request, at: int | Rows = ALL) -> BoolArray | None:
    """Return the devices without shares of another group; None: no share, or no other group."""
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
    """Return one truth value per number of a resource; the last one stands for ABSENT."""
    serves = cluster.resources.where(lambda resource: resource == request.resource)
    return np.append(serves, False)
