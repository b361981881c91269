# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap with the last lines of an attempt: one for each GPUJob, which goes with it."""

from collections.abc import Mapping

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Json
from gpupack_operator.manifests import owner


def saved_log(job: GpuJob, *, attempt: int, tails: Mapping[int, str]) -> Json:
    """The manifest; `tails` holds text by worker."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(job, name=names.saved_log(job.metadata.uid), attempt=attempt),
        "data": {f"{names.SAVED_LOG_KEY_PREFIX}{worker}": text for worker, text in tails.items()},
    }
