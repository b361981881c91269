# SPDX-License-Identifier: Apache-2.0
"""Pods that tests of admission try to create."""

from manifests import JUDGE_IMAGE

GPU = "gpupack.dev/gpu"
SLOT = "gpupack.dev/gpu-share"
PERCENT = "gpupack.dev/gpu-percent"
MEMORY = "gpupack.dev/gpu-memory"
SHARE = {SLOT: "1", PERCENT: "40", MEMORY: "10Gi"}
"""The resource that requests a share."""

PLAIN = {"name": "plain", "image": JUDGE_IMAGE}


def pod(*containers, annotations=None, **spec):
    """A pod that no kubelet ever sees, so that nothing delays its deletion."""
    base = {"schedulerName": "no-scheduler", "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "idle", "annotations": annotations or {}},
        "spec": base | {"containers": containers or [PLAIN | {"name": "main"}]} | spec,
    }


def asking(name="main", limits=None, **container):
    """A container that requests one GPU, or these limits."""
    limits = {GPU: "1"} if limits is None else limits
    return {"name": name, "image": JUDGE_IMAGE, "resources": {"limits": limits}} | container


def sharing(name="main", *, without=(), **changes):
    """A container that requests a share, changed by the last word of the resource's name."""
    limits = SHARE | {f"gpupack.dev/gpu-{word}": value for word, value in changes.items()}
    return asking(name, {key: limits[key] for key in limits if key not in without})


def variable(name, value="all"):
    """An environment with one variable."""
    return [{"name": name, "value": value}]


def try_pod(tenant, *containers, **spec):
    """Return the API server's message for a tenant's pod in a dry run."""
    return tenant.try_to_create(pod(*containers, **{"schedulerName": "gpupack"} | spec))
