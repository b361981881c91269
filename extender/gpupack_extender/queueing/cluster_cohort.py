# SPDX-License-Identifier: Apache-2.0
"""GPUCohort `cluster`, whose status keeps what a new deciding process must know."""

import logging

from gpupack_crds import names
from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_crds.kinds import GPUCOHORTS, GpuCohort
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

log = logging.getLogger(__name__)


def shown(stores: QuotaStores) -> GpuCohort | None:
    """Return the GPUCohort as the watch shows it."""
    return stores.cohorts.items.get(("", CLUSTER_NAME))


async def make(api: Api) -> None:
    """Create the GPUCohort; the watch will show it."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUCohort",
        "metadata": {"name": CLUSTER_NAME},
        "spec": {},
    }
    try:
        await api.create(GPUCOHORTS, body)
    except errors.AlreadyExists:
        log.debug("there is a GPUCohort %s, which the watch will show", CLUSTER_NAME)
    except errors.KubeError as error:
        log.warning("cannot make GPUCohort %s: %s", CLUSTER_NAME, error)
