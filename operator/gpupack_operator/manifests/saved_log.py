# SPDX-License-Identifier: Apache-2.0
"""ConfigMap with the last log lines of an attempt: one for each GPUJob, deleted with it."""

from collections.abc import Mapping

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests import owner


def saved_log(job: GpuJob, *, attempt: int, tails: Mapping[int, str]) -> Json:
    """Make the manifest; `tails` holds text by worker."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(job, name=names.saved_log(job.metadata.uid), attempt=attempt),
        "data": {f"{names.SAVED_LOG_KEY_PREFIX}{worker}": text for worker, text in tails.items()},
    }
