# SPDX-License-Identifier: Apache-2.0
"""The node's Lease: says to the cluster that this agent lives."""

import asyncio
import logging

from gpupack_agent.settings import NodeSettings
from gpupack_crds import names
from gpupack_kube import client, errors, heartbeat

log = logging.getLogger(__name__)

BEATS_PER_DURATION = 4


async def beat_forever(api: client.Api, node: NodeSettings, *, holder: str) -> None:
    """Renew the Lease until cancelled; a missed beat is logged, the next one comes in its turn."""
    while True:
        try:
            await heartbeat.beat(
                api,
                names.heartbeat_lease(node.name),
                namespace=node.system_namespace,
                holder=holder,
                duration_seconds=node.heartbeat_duration_seconds,
            )
        except errors.KubeError as error:
            log.warning("no heartbeat: %s", error)
        await asyncio.sleep(node.heartbeat_duration_seconds / BEATS_PER_DURATION)
