# SPDX-License-Identifier: Apache-2.0
"""Invented clusters: a small one with every state that a view can show, and large ones.

All times are relative to the creation of the world.
"""

import datetime as dt
import itertools
import random

import msgspec
from extender_builders import gpu_node, node, part, pod, share_limits, uuid, whole
from kube import CLUSTER, GROUP, Kube

from gpupack_crds.placement import WorkerPlacement, by_node

ADMIN, TENANT, STRANGER = "admin-token", "tenant-token", "stranger-token"
MEMORY_MIB = {"NVIDIA A100-SXM4-40GB": 40960, "NVIDIA L4": 23034, "NVIDIA H200": 143771}
TEAMS = ("vision", "speech", "search", "research", "robotics")
HOSTILE = "<img src=x onerror=alert(1)>"
"""What a tenant may try to have drawn as markup."""


class World:
    """A cluster in a Kubernetes API server."""

    def __init__(self):
        self.kube = Kube()
        self.now = dt.datetime.now(dt.UTC)
        self.kube.users = {ADMIN: "admin", TENANT: "tenant", STRANGER: "stranger"}
        self.kube.rights = {
            ("admin", "*", "*", "*", "*"),
            ("tenant", *CLUSTER, ""),
            *(("tenant", verb, GROUP, "*", "vision") for verb in ("list", "create")),
            ("tenant", "list", "", "pods", "vision"),
        }
        self._numbers = itertools.count(1)

    def ago(self, seconds):
        """That moment, as the API writes it."""
        return (self.now - dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def node(
        self, name, *, model="NVIDIA H100 80GB HBM3", gpus=8, ready=True, simulated=False, **of
    ):
        self.kube.put("nodes", plain(node(name, ready=ready)))
        shown = plain(gpu_node(name, gpus=gpus, **of))
        for device in shown["status"]["devices"]:
            memory = MEMORY_MIB.get(model, 81559)
            device |= {"model": model, "memoryMiB": memory, "simulated": simulated}
        self.kube.put("gpunodes", shown)

    def pod(self, name, where, devices, *, namespace="vision", worker=None):
        [first, *_] = devices
        shared = first.percent < 100
        built = pod(
            name,
            on=where,
            devices=devices,
            gpus=len(devices),
            asking=share_limits(first.percent, f"{first.memory_mib}Mi") if shared else None,
            phase="Running",
            worker=worker,
            namespace=namespace,
        )
        self.kube.put("pods", plain(built))

    def job(self, name, *, namespace="vision", age=600, placed=(), spec=None, **status):
        """`placed`: (node, GPU numbers or shares) of each worker."""
        workers = [
            WorkerPlacement(
                at, where, held if isinstance(held[0], msgspec.Struct) else whole(where, *held)
            )
            for at, (where, held) in enumerate(placed)
        ]
        attempts = status.get("attempts", [])
        built = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "creationTimestamp": self.ago(age),
            },
            "spec": {"workers": max(len(placed), 1), "gpus": 1, "workload": {"name": "matmul"}}
            | (spec or {}),
            "status": {
                "attempt": len(attempts),
                "placement": msgspec.to_builtins(by_node(workers)) if workers else [],
                **status,
            },
        }
        self.kube.put("gpujobs", built)
        for worker in workers:
            mark = (name, len(attempts), worker.worker, f"uid-{name}")
            self.pod(
                f"{name}-{worker.worker}",
                worker.node,
                worker.devices,
                namespace=namespace,
                worker=mark,
            )

    def running(self, name, placed, *, gpus, age=1800, **more):
        nodes = sorted({where for where, _ in placed})
        attempt = {"number": 1, "startedAt": self.ago(age - 40), "nodes": ",".join(nodes)}
        self.job(
            name,
            placed=placed,
            age=age,
            phase="Running",
            reason="Running",
            gpus=gpus,
            nodes=",".join(nodes),
            startedAt=self.ago(age - 40),
            attempts=[attempt],
            **more,
        )

    def quota(self, namespace, nominal, used, *, cohort="ml", **status):
        borrowed = max(used - nominal, 0)
        built = {
            "metadata": {"name": "default", "namespace": namespace, "uid": f"uid-{namespace}"},
            "spec": {"cohort": cohort, "gpus": [{"model": "H100", "nominal": nominal}]},
            "status": {
                "nominal": str(nominal),
                "used": f"{used:g}",
                "borrowed": f"{borrowed:g}",
                "lent": str(max(nominal - int(used), 0)),
                "running": 3,
                "waiting": 1,
                **status,
            },
        }
        self.kube.put("gpuquotas", built)


def small():
    """Every kind of node, job, health and hold; tenants' names that are hostile."""
    world = World()
    for number in range(1, 11):
        name = f"train-{number:02}"
        mended = [{"reason": "fan", "gpus": [uuid(name, 7)]}] if number == 9 else []
        world.node(name, health=UNWELL.get(number), maintenance=mended)
    for number in range(1, 7):
        world.node(f"serve-{number}", model="NVIDIA A100-SXM4-40GB", gpus=4, ready=number != 6)
    for number in range(1, 3):
        world.node(f"lab-{number}", model="NVIDIA L4", gpus=2, simulated=True)
    _running(world)
    _waiting(world)
    _ended(world)
    for team, nominal, used in zip(TEAMS, (24, 16, 8, 8, 4), (28, 9.5, 8, 2.25, 0), strict=True):
        world.quota(team, nominal, used)
    return world


UNWELL = {3: {5: "Degraded"}, 6: {0: "Failed", 1: "Failed"}, 8: {2: "Cordoned"}}
"""GPUs by the number of their node."""


def _running(world):
    four = [(f"train-{number:02}", range(8)) for number in (1, 2)]
    world.running("pretrain", [(where, tuple(gpus)) for where, gpus in four], gpus="16")
    world.running("finetune", [("train-03", (0, 1, 2, 3))], gpus="4", age=5400)
    world.running(
        "asr",
        [("train-04", (0, 1, 2, 3)), ("train-05", (0, 1, 2, 3))],
        gpus="8",
        namespace="speech",
    )
    world.running("rank", [("train-07", tuple(range(8)))], gpus="8", namespace="search")
    world.running("probe", [("train-08", (2,))], gpus="1", namespace="research")
    for number, team in enumerate(TEAMS):
        where = f"serve-{number % 4 + 1}"
        held = part(where, number % 4, percent=25 + 15 * number, memory_mib=9000 + 4000 * number)
        world.pod(f"notebook-{number}", where, held, namespace=team)
        half = part(where, number % 4, percent=20, memory_mib=4096)
        world.pod(f"demo-{number}", where, half, namespace="vision")
    world.pod("debug", "lab-1", whole("lab-1", 0), namespace="robotics")


def _waiting(world):
    missing = "gang of 8 workers x 8 GPUs: 4 of 8 workers fit now; 32 GPUs are missing"
    world.job(
        "pretrain-large",
        age=4000,
        spec={"workers": 8, "gpus": 8},
        phase="Pending",
        reason="TooFewFreeGpus",
        message=f"{missing} (21 free GPUs in 6 nodes, 64 requested); 3 nodes have 7",
        gpus="64",
        priority=10,
    )
    world.job(
        "distill",
        age=900,
        spec={"workers": 2, "gpus": 4},
        phase="Pending",
        reason="QuotaExhausted",
        message="quota of vision: 28 of 24 H100 used, 4 borrowed; borrowing more waits for others",
        gpus="8",
    )
    world.job(
        "align",
        namespace="speech",
        age=300,
        phase="Pending",
        reason="BlockedByQueueHead",
        message=f"waits behind 2 jobs; {HOSTILE}",
        gpus="1",
        priority=-5,
    )


def _ended(world):
    attempts = [
        {
            "number": 1,
            "startedAt": world.ago(7000),
            "finishedAt": world.ago(5200),
            "outcome": "Failed",
            "reason": "GpuFailed",
            "message": "GPU 0 of train-06 failed: XID 79, the GPU has fallen off the bus",
            "nodes": "train-06",
        },
        {
            "number": 2,
            "startedAt": world.ago(4900),
            "finishedAt": world.ago(4700),
            "outcome": "Failed",
            "reason": "NodeLost",
            "message": f"train-09 was lost; {HOSTILE}",
            "nodes": "train-09",
        },
        {
            "number": 3,
            "startedAt": world.ago(4600),
            "finishedAt": world.ago(900),
            "outcome": "Succeeded",
            "reason": "Completed",
            "nodes": "train-10",
        },
    ]
    world.job(
        "sweep",
        age=7200,
        phase="Succeeded",
        reason="Completed",
        attempts=attempts,
        restarts=1,
        gpus="8",
        nodes="train-10",
        headline="412 TFLOP/s",
        startedAt=world.ago(7000),
        message="all workers ended well",
    )
    world.job(
        "broken", namespace="research", age=3000, phase="Failed", reason="WorkerFailed",
        message="worker 0 ended with exit code 1", gpus="2",
        attempts=[
            {
                "number": 1,
                "startedAt": world.ago(2900),
                "finishedAt": world.ago(2890),
                "outcome": "Failed",
                "reason": "WorkerFailed",
                "message": "exit code 1",
                "nodes": "train-04",
            }
        ],
    )  # fmt: skip


def large(nodes, pods, *, teams=40):
    """So many nodes of eight GPUs, and pods with a GPU each, of so many teams."""
    world, chance = World(), random.Random(0)
    for number in range(nodes):
        model = MODELS[number * len(MODELS) // nodes]
        health = (
            {0: "Failed"} if number % 97 == 0 else {1: "Degraded"} if number % 31 == 0 else None
        )
        world.node(f"gpu-{number:04}", model=model, health=health)
    places = chance.sample(range(nodes * LET), pods)
    for number, place in enumerate(places):
        where = f"gpu-{place // LET:04}"
        held = whole(where, place % LET)
        world.pod(f"p{number}", where, held, namespace=f"team-{number % teams:02}")
    for number in range(200):
        world.job(
            f"job-{number}", namespace=f"team-{number % teams:02}", phase="Pending",
            reason="TooFewFreeGpus", message="16 GPUs are missing", gpus="64",
        )  # fmt: skip
    return world


LET = 7
"""GPUs of a node that pods have; the last one is for those that come and go."""

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB")


def plain(built):
    """An object as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(built))
