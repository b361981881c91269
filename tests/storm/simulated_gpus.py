# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes (kwok) of a storm: their GPUs, what runs there, and what happens to their power.

A pod there runs no container. It ends when and how its annotations say (devcluster's
kwok_pod_end.yaml).
"""

import contextlib
import datetime as dt
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness import AWAY, Kube
from manifests import Share, asked_of_a_job, controller, gpujob, limits
from pod_rules import Gpu
from truth_fleet import Gpus, Shape
from truth_nodes import simulated_nodes

from gpupack_devcluster.driver import ClusterDriver, HostComponent
from gpupack_devcluster.errors import NotUp
from gpupack_devcluster.settings import HOST

Manifest = dict[str, Any]

A100 = Gpus(model="NVIDIA A100-SXM4-40GB", memory_mib=40960, number=8, cliques=1)
T4 = Gpus(model="Tesla T4", memory_mib=15360, number=2)
LEASE_SECONDS = 4
ENDS_AFTER, EXIT_CODE = "simulated.devcluster/ends-after", "simulated.devcluster/exit-code"
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
LOST_NODE = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    for state in ("not-ready", "unreachable")
]
"""A Deployment's pods leave a dead node as soon as workers do."""


def shapes(*, large: int, small: int) -> dict[str, Shape]:
    """So many nodes of eight A100s, and so many of two T4s."""
    large_node = Shape(pool="large", cpu=96, memory_gib=1024, gpus=(A100,))
    small_node = Shape(pool="small", cpu=16, memory_gib=128, gpus=(T4,))
    found = [large_node] * large + [small_node] * small
    return {f"kwok-{index + 1}": shape for index, shape in enumerate(found)}


@contextlib.contextmanager
def nodes_up(cluster: ClusterDriver, nodes: Mapping[str, Shape]) -> Iterator[None]:
    """These nodes, and a new kwok: one that runs since before may not know when pods end."""
    with contextlib.suppress(NotUp):
        cluster.kill(HOST, HostComponent.KWOK)
    with simulated_nodes(cluster, nodes):
        yield


def job(
    name: str, *, seconds: float, exit_code: int = 0, share: Share | None = None, **spec: Any
) -> Manifest:
    """A GPUJob for simulated nodes: name the models that only they have."""
    template = {
        "metadata": {"annotations": {ENDS_AFTER: f"{seconds}s", EXIT_CODE: str(exit_code)}},
        "spec": {
            "tolerations": TOLERATIONS,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "worker", "image": "none"}],
        },
    }
    size = {} if share is None else {"share": asked_of_a_job(share)}
    return gpujob(name, template=template, **size, **spec)


def deployment(name: str, *, gpus: int = 1, share: Share | None = None) -> Manifest:
    """A Deployment without replicas yet, for simulated nodes."""
    resources = {"limits": limits(gpus, share)}
    pod = {
        "schedulerName": "gpupack",
        "nodeSelector": {"type": "kwok"},
        "tolerations": [*TOLERATIONS, *LOST_NODE],
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "server", "image": "none", "resources": resources}],
    }
    return controller("Deployment", name, pod, replicas=0)


def inventory(gpunodes: Iterable[Manifest], keys: Iterable[str]) -> dict[str, Gpu]:
    """All GPUs by UUID; `keys` are the models as quotas name them."""
    names = list(keys)
    return {
        device["uuid"]: Gpu(
            next(key for key in names if key in device["model"]), device["memoryMiB"]
        )
        for gpunode in gpunodes
        for device in gpunode["status"]["devices"]
    }


def cut_power(kube: Kube, node: str, seconds: float) -> bool:
    """Stop the heartbeats of a simulated node for so long; False: the API server was unavailable.

    Another holder has its Lease until then, so kwok neither renews it nor touches the node's pods.
    It takes both up again by itself when the Lease is over.
    """
    over = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds - LEASE_SECONDS)
    lease = {
        "holderIdentity": "power-cut",
        "renewTime": over.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "leaseDurationSeconds": LEASE_SECONDS,
    }
    where = ("lease", node, "--namespace=kube-node-lease", "--type=merge")
    done = kube.kubectl("patch", *where, "--patch", json.dumps({"spec": lease}))
    away = any(words in done.stderr for words in AWAY)
    assert done.returncode == 0 or away, done.stderr
    return done.returncode == 0


def draw_outage(chance: random.Random, nodes: Mapping[str, Shape]) -> tuple[list[str], float]:
    """One to three nodes, and for how many seconds."""
    return chance.sample(sorted(nodes), chance.randint(1, 3)), chance.uniform(10, 30)
