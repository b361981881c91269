# SPDX-License-Identifier: Apache-2.0
"""A Node's Lease as a heartbeat: one holder that renews it, without contention.

The Node owns the Lease, so that the Lease is removed with it. Without a Node no Lease is created,
as kubelets do.
"""

import asyncio
import datetime as dt
import logging

from gpupack_kubeclient import client, errors, objects
from gpupack_kubeclient.node_owner import node_reference
from gpupack_kubeclient.resources import LEASES

log = logging.getLogger(__name__)

BEATS_PER_DURATION = 4


async def beat_forever(
    api: client.Api, name: str, *, node: str, namespace: str, holder: str, duration_seconds: int
) -> None:
    """Renew the Lease until cancelled; a missed beat is logged, and the next one follows on time.

    A Lease that cannot be given its owner is logged once.
    """
    logged = ""
    while True:
        try:
            unowned = await beat(
                api,
                name,
                node=node,
                namespace=namespace,
                holder=holder,
                duration_seconds=duration_seconds,
            )
        except errors.KubeError as error:
            log.warning("no heartbeat: %s", error)
        else:
            if unowned and unowned != logged:
                log.warning("Lease %s is renewed, and has no owner: %s", name, unowned)
            logged = unowned
        await asyncio.sleep(duration_seconds / BEATS_PER_DURATION)


async def beat(
    api: client.Api, name: str, *, node: str, namespace: str, holder: str, duration_seconds: int
) -> str:
    """Renew the Lease `name`, or create it for its Node; set the owner where it has none.

    Returns:
        Why the renewed Lease has no owner; empty: it has one.

    Raises:
        KubeError: the Lease was not renewed; beat again at the next interval.
    """
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_seconds,
        "renewTime": timestamp(dt.datetime.now(dt.UTC)),
    }
    try:
        lease = await api.merge(LEASES, name, {"spec": spec}, namespace=namespace)
    except errors.NotFound:
        owner = await node_reference(api, node)
        await api.create(LEASES, _lease(name, namespace, owner, spec), namespace=namespace)
        return ""
    if lease.metadata.owner_references:
        return ""
    return await _own(api, name, node=node, namespace=namespace)


async def _own(api: client.Api, name: str, *, node: str, namespace: str) -> str:
    """Make the Node the owner of a Lease; return the reason where that fails."""
    try:
        owned = {"metadata": {"ownerReferences": [await node_reference(api, node)]}}
        await api.merge(LEASES, name, owned, namespace=namespace)
    except errors.KubeError as error:
        return str(error)
    return ""


def timestamp(moment: dt.datetime) -> str:
    """Format a time as Kubernetes' MicroTime: UTC, six decimals."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lease(name: str, namespace: str, owner: objects.Json, spec: objects.Json) -> objects.Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "spec": spec,
    }
