# SPDX-License-Identifier: Apache-2.0
"""An API server's objects, and a ledger that has seen them."""

import msgspec

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.kinds import GpuNode
from gpupack_crds.plan import PlanRequest
from gpupack_extender.errors import NotReady
from gpupack_extender.filtering import Filter
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.placed_job import PlacedJob
from gpupack_extender.planning import Plan
from gpupack_extender.ranking import Prioritize
from gpupack_extender.reserving import Reserve
from gpupack_extender.settings import Decisions, Mode
from gpupack_extender.wire import ExtenderArgs
from gpupack_kube import objects

MEMORY_MIB = 81559


class World:
    """Objects go in as the watch would show them; calls come out as answers."""

    def __init__(self, *, mode=Mode.DECISIVE):
        self.now = 1000.0
        self.decides_from = 0.0
        self.leads = True
        self.decisions = Decisions(mode=mode)
        self.use(Ledger(lambda: self.now))

    def use(self, ledger):
        self.ledger = ledger
        self.filter_pod = Filter(ledger, self.decisions, self.may_decide)
        self.prioritize_pod = Prioritize(ledger, self.decisions)
        self.plan = Plan(ledger, self.decisions)
        self.reserve = Reserve(ledger, self.decisions, self.may_decide)

    def may_decide(self):
        if self.now < self.decides_from:
            raise NotReady

    def add_node(self, name, *, gpus=4, **changes):
        self.ledger.nodes.upsert(node(name, **changes))
        self.ledger.gpus.upsert(gpu_node(name, gpus=gpus))

    def filter(self, asking, *, nodes=("a", "b")):
        return self.filter_pod(ExtenderArgs(pod=asking, node_names=list(nodes)))

    def prioritize(self, asking, *, nodes=("a", "b")):
        scores = self.prioritize_pod(ExtenderArgs(pod=asking, node_names=list(nodes)))
        return {each.host: each.score for each in scores}

    def free(self, name):
        """The free GPUs of a node, by their numbers."""
        free = self.ledger.cluster.free_devices(name)
        return [number for number, each in enumerate(free) if each.milli]

    def states(self):
        """All claims' states, sorted."""
        books = self.ledger.books
        return sorted(c.state.value for c in (*books.workers.values(), *books.pods.values()))


def uuid(node_name, number):
    return f"GPU-{node_name}-{number}"


def node(name, *, cpu="32", memory="256Gi", ready=True, cordoned=False, labels=None, tickets=8):
    status = {
        "allocatable": {"cpu": cpu, "memory": memory, "gpupack.dev/gpu": tickets},
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    built = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"unschedulable": cordoned},
        "status": status,
    }
    return msgspec.convert(built, objects.Node)


def gpu_node(name, *, gpus=4, failed=(), mode="owned", prefix=None, sliced=()):
    devices = [
        {
            "uuid": uuid(prefix or name, number),
            "index": number,
            "model": "NVIDIA H100 80GB HBM3",
            "memoryMiB": MEMORY_MIB,
            "health": "Failed" if number in failed else "Healthy",
        }
        for number in range(gpus)
    ]
    slices = [
        {**devices[number], "uuid": f"MIG-{name}-{number}", "migParent": devices[number]["uuid"]}
        for number in sliced
    ]
    status = {"mode": mode, "devices": devices + slices}
    built = {"metadata": {"name": name}, "status": status}
    return msgspec.convert(built, GpuNode)


def whole(node_name, *numbers):
    """These GPUs of a node, each wholly."""
    return tuple(
        DeviceShare(uuid=uuid(node_name, number), percent=100, memory_mib=MEMORY_MIB)
        for number in numbers
    )


def pod(name, *, gpus=1, on="", devices=None, phase="Pending", cpu="1", worker=None, **metadata):
    """A pod; `devices` annotates it, `worker` (job, attempt, index, UID) makes it a GPUJob's."""
    labels, owners = _worker_of(*worker) if worker else ({}, [])
    annotations = {names.DEVICES_ANNOTATION: encode_devices(devices)} if devices else {}
    limits = {"cpu": cpu} | ({names.GPU: str(gpus)} if gpus else {})
    built = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": labels,
            "ownerReferences": owners,
            "annotations": annotations,
            **metadata,
        },
        "spec": {
            "nodeName": on,
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "worker", "resources": {"limits": limits}}],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(built, objects.Pod)


def _worker_of(job_name, attempt, index, uid=None):
    labels = {
        names.JOB_LABEL: job_name,
        names.JOB_UID_LABEL: uid or f"uid-{job_name}",
        names.ATTEMPT_LABEL: str(attempt),
        names.INDEX_LABEL: str(index),
    }
    return labels, [owner(f"{job_name}-{attempt}")]


def owner(name, **changes):
    """A reference to a Job as the Job controller writes it."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True, **changes}


def job(name, *, attempt=0, phase="Pending", placed=(), **spec):
    """A GPUJob; `placed` holds (node, GPU numbers) per worker."""
    placement = [
        {"worker": index, "node": where, "devices": msgspec.to_builtins(whole(where, *numbers))}
        for index, (where, numbers) in enumerate(placed)
    ]
    built = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"gpus": 1, **spec},
        "status": {"attempt": attempt, "phase": phase, "placement": placement},
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob)


def plan_request(name, *, attempt=1, workers=1, gpus=1, pod_spec=None, **spec):
    built = {
        "namespace": "team",
        "name": name,
        "uid": f"uid-{name}",
        "attempt": attempt,
        "spec": {"workers": workers, "gpus": gpus, **spec},
        "podSpec": pod_spec or {"containers": [{"name": "worker"}]},
    }
    return msgspec.convert(built, PlanRequest)
