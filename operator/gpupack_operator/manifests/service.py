# SPDX-License-Identifier: Apache-2.0
"""Headless Service that gives workers their host names."""

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests import owner


def service(job: GpuJob) -> Json:
    """Make one Service for all attempts; workers must find each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(job, name=job.metadata.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.labels(job),
            "ports": [{"name": "rendezvous", "port": names.RENDEZVOUS_PORT}],
        },
    }
