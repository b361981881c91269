# SPDX-License-Identifier: Apache-2.0
"""Statuses of objects that the extender reports about, some of them in each pass."""

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from gpupack_crds.kinds import (
    GPUCOHORTS,
    GPUQUOTAS,
    GPURESERVATIONS,
    GpuCohort,
    GpuQuota,
    GpuReservation,
    status_body,
)
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import Resource

Item: TypeAlias = GpuQuota | GpuCohort | GpuReservation

log = logging.getLogger(__name__)

MAX_WRITES: Final = 50
"""Largest number of writes in one pass; the others follow in the next passes."""

_KINDS: Final[dict[type[Item], tuple[str, Resource[Any]]]] = {
    GpuQuota: ("GPUQuota", GPUQUOTAS),
    GpuCohort: ("GPUCohort", GPUCOHORTS),
    GpuReservation: ("GPUReservation", GPURESERVATIONS),
}


class StatusWriter:
    """Writer of statuses that have changed; each pass begins with those left by the last one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._written = 0

    async def write(self, stale: Sequence[tuple[Item, msgspec.Struct]]) -> None:
        """Write statuses, at most MAX_WRITES; a failed write is left to the next pass."""
        start = self._written % max(len(stale), 1)
        for item, status in (*stale[start:], *stale[:start])[:MAX_WRITES]:
            self._written += 1
            kind, meta = _KINDS[type(item)][0], item.metadata
            about = kind, meta.namespace, meta.name
            try:
                await self._write(item, status)
            except (errors.Conflict, errors.NotFound) as error:
                log.debug("the status of %s %s/%s is written later: %s", *about, error)
            except errors.Refused as error:
                log.warning("the status of %s %s/%s is refused: %s", *about, error)
            except errors.KubeError as error:
                log.warning("cannot write the status of %s %s/%s: %s", *about, error)
                return

    async def _write(self, item: Item, status: msgspec.Struct) -> None:
        (kind, resource), meta = _KINDS[type(item)], item.metadata
        body = status_body(kind, meta, status)
        await self._api.replace(
            resource, meta.name, body, namespace=meta.namespace, subresource="status"
        )
