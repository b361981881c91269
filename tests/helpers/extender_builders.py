# SPDX-License-Identifier: Apache-2.0
"""An API server's objects, and a ledger that has seen them."""

import datetime as dt

import msgspec

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.kinds import GpuNode
from gpupack_crds.placement import WorkerPlacement, by_node, by_worker
from gpupack_crds.plan import PlanRequest
from gpupack_extender.binding import annotations
from gpupack_extender.filtering import Filter
from gpupack_extender.ranking import Prioritize
from gpupack_extender.reserving import Reserve
from gpupack_extender.unknown_jobs import UnknownJobs
from gpupack_kubeclient import objects
from gpupack_scheduler.decisions import Decisions, Mode
from gpupack_scheduler.errors import NotReady
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.ledger import Ledger, Outcome
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.ledger.watched_pod import WatchedPod
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.planning import Plan
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.turns import Notifiers, Turns
from gpupack_scheduler.requests import pod_request

MEMORY_MIB = 81559
OBSERVED = "nvidia.com/gpu"
OTHER = "amd.com/gpu"
"""For those tests in which two are observed."""


class JobsList:
    """Stands where the reflector of GPUJobs does; `asked`: within how many seconds to list."""

    def __init__(self):
        self.listed_at = 0.0
        self.asked = []

    def relist(self, *, wait_seconds=0.0):
        self.asked.append(wait_seconds)


class OpenedGates:
    """A stand-in for the writer of pods.

    `opened`: pods and their places, in order; `members`: the gangs of pod groups with which they
    are admitted, by name; `recorded`: pods and their preemptions.
    """

    def __init__(self):
        self.opened = []
        self.members = {}
        self.recorded = []

    def record(self, pod, preemption):
        self.recorded.append((pod, preemption))

    def open(self, pod, place, member=None):
        self.opened.append((pod, place))
        self.members[pod.metadata.name] = member


class World:
    """Objects go in as the watch would show them; calls come out as answers."""

    def __init__(self, *, mode=Mode.DECISIVE, observed=(OBSERVED,), acceptance=None):
        self.now = 1000.0
        self.decides_from = 0.0
        self.leads = True
        self.observed = observed
        self.decisions = Decisions(
            mode=mode, policy="best-fit", observed_resources=observed, acceptance=acceptance
        )
        self.use(self.new_ledger())

    def new_ledger(self):
        """Ties go to the node added first, so that a test can tell where a pod goes."""
        return Ledger(
            lambda: self.now,
            observed_resources=self.decisions.observed_resources,
            acceptance=self.decisions.acceptance,
            tie_seed=None,
        )

    def use(self, ledger):
        self.ledger = ledger
        self.policies = Policies(self.decisions.policy, ledger.learner)
        self.jobs_list = JobsList()
        unknown_jobs = UnknownJobs(self.jobs_list, ledger.pods.seen_at, clock=lambda: self.now)
        self.prioritize_pod = Prioritize(ledger, self.policies, self.decisions)
        self.turns, self.quotas, self.gates = Turns(), QuotaStores(), OpenedGates()
        queue = ObservedQueue(
            ledger,
            self.policies,
            self.quotas,
            now=lambda: self.now,
            decisions=self.decisions,
        )
        self.owner = QueueOwner(queue, self.policies, Notifiers(self.turns, self.gates))
        self.filter_pod = Filter(
            ledger, self.policies, self.decisions, self.may_decide, unknown_jobs, self.owner
        )
        self.reserve_ask = Reserve(ledger, self.owner, self.decisions, self.may_decide)
        self.plan = Plan(ledger, self.owner, self.decisions)

    def asks(self, name, **asked):
        """The operator asks for a plan; `submitted`: when the GPUJob was made."""
        return self.plan(plan_request(name, **asked))

    def decide(self):
        """Decide as the runner does after a change, until nothing more is due."""
        while self.owner.decide():
            pass

    def called(self):
        """Return the names of notified jobs in order."""
        return [given.name for given in self.turns._last]

    def running(self):
        """Return the names of running jobs in the queue's state."""
        return [running.job.name for running in self.owner.queue.state.running]

    def written(self, name, *, namespace="team"):
        """The watch shows that the plan of a job's first attempt was written."""
        self.shows(name, self.ledger.plan_of(self.attempt(name, namespace=namespace)), namespace)

    def shows(self, name, held, namespace="team"):
        """The watch shows a job whose workers have these claims; without any it has ended."""
        placed = [(claim.placement.node, claims.shares(claim.placement)) for claim in held]
        phase = "Admitted" if placed else "Succeeded"
        shown = job(name, attempt=1, phase=phase, placed=placed, namespace=namespace)
        self.ledger.jobs.upsert(shown)

    def ends(self, name, *, nodes=None, namespace="team"):
        """A job has ended, or given back what it had on these nodes."""
        held = self.ledger.plan_of(self.attempt(name, namespace=namespace))
        left = [c for c in held if nodes is not None and c.placement.node not in nodes]
        self.shows(name, left, namespace)

    def settle(self, name, outcome):
        """Return the answer of a read about a job's plan that no watch has shown."""
        self.ledger.settle_plan(self.ledger.plan_of(self.attempt(name)), outcome)

    def attempt(self, name, number=1, *, namespace="team"):
        return AttemptKey(namespace=namespace, job=name, job_uid=f"uid-{name}", number=number)

    def with_times(self, shown, *, startedAt):  # noqa: N803 - the field's name
        """A GPUJob whose current attempt, and the job, began then."""
        built = msgspec.to_builtins(shown)
        number = built["status"]["attempt"]
        times = {"startedAt": startedAt, "attempts": [{"number": number, "startedAt": startedAt}]}
        built["status"] |= times
        return msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob)

    def may_decide(self):
        if self.now < self.decides_from:
            raise NotReady

    def add_node(self, name, *, gpus=4, **changes):
        self.ledger.nodes.upsert(node(name, **changes))
        self.ledger.gpus.upsert(gpu_node(name, gpus=gpus))

    def add_node_of_two(self, name, *, theirs=2, others=3):
        """A node on which two other device plugins hand out GPUs of their own."""
        amd = {"resource": OTHER, "model": "AMD Instinct MI300X"}
        shown = gpu_node(name, gpus=theirs + others, mode="observed", resource=OBSERVED)
        devices = tuple(
            msgspec.structs.replace(each, **amd) if each.index >= theirs else each
            for each in shown.status.devices
        )
        both = {"devices": devices, "resources": (OBSERVED, OTHER)}
        status = msgspec.structs.replace(shown.status, **both)
        self.ledger.nodes.upsert(observed_node(name, gpus=theirs, **{OTHER: others}))
        self.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))

    def add_observed_node(self, name, *, gpus=4, **changes):
        """A node whose GPUs another device plugin hands out."""
        self.ledger.nodes.upsert(observed_node(name, gpus=gpus, **changes))
        self.ledger.gpus.upsert(gpu_node(name, gpus=gpus, mode="observed", resource=OBSERVED))

    def bind(self, asking, on):
        """The pod as the API shows it once its Binding to this node has landed."""
        claim = self.reserve(asking, on)
        self.ledger.end_bind(asking.metadata.uid, Outcome.LANDED)
        bound = as_bound(asking, claim)
        self.ledger.pods.upsert(bound)
        return bound

    def reserve(self, asking, on):
        return self.reserve_ask(pod_request.of_watch(asking, self.observed), on)

    def filter(self, asking, *, nodes=("a", "b")):
        return self.filter_call(called(asking), nodes=nodes)

    def try_filter(self, asking):
        """Return the error of filter; empty if it answered."""
        try:
            self.filter(asking)
        except NotReady as error:
            return str(error)
        return ""

    def filter_call(self, call, *, nodes=("a", "b")):
        """Return the call with the pod as kube-scheduler sends it."""
        return self.filter_pod(pod_request.of_call(call, self.observed), list(nodes))

    def prioritize(self, asking, *, nodes=("a", "b")):
        scores = self.prioritize_pod(
            pod_request.of_call(called(asking), self.observed), list(nodes)
        )
        return {each.host: each.score for each in scores}

    def free(self, name):
        """The GPUs of a node of which anything is free, by their numbers."""
        free = self.ledger.cluster.free_devices(name)
        return [number for number, each in enumerate(free) if each.milli]

    def left(self, name):
        """Percent that is free of each GPU of a node."""
        return [each.milli // 10 for each in self.ledger.cluster.free_devices(name)]

    def states(self):
        """All claims' states, sorted."""
        table = self.ledger.claims
        return sorted(c.state.value for c in (*table.workers.values(), *table.pods.values()))


def uuid(node_name, number):
    return f"GPU-{node_name}-{number}"


def observed_node(name, *, gpus=4, **changes):
    return node(name, tickets=0, slots=0, **{OBSERVED: gpus}, **changes)


def node(
    name,
    *,
    cpu="32",
    memory="256Gi",
    ready=True,
    cordoned=False,
    labels=None,
    tickets=8,
    slots=160,
    pods=110,
    uid="",
    **resources,
):
    """`ready`: whether it is, or "Unknown"."""
    ours = {names.GPU: tickets, names.GPU_SHARE: slots}
    status = {
        "allocatable": {"cpu": cpu, "memory": memory, "pods": str(pods), **ours, **resources},
        "conditions": [{"type": "Ready", "status": str(ready or False)}],
    }
    built = {
        "metadata": {"name": name, "uid": uid, "labels": labels or {}},
        "spec": {"unschedulable": cordoned},
        "status": status,
    }
    return msgspec.convert(built, objects.Node)


def gpu_node(
    name,
    *,
    gpus=4,
    failed=(),
    mode="owned",
    resource=names.GPU,
    prefix=None,
    sliced=(),
    lingering=None,
    maintenance=(),
    quarantine=(),
    health=None,
    simulated=False,
    of=None,
    model="NVIDIA H100 80GB HBM3",
):
    """`health`: by number, of GPUs that are not healthy. `of`: UID of the Node that owns it.

    `lingering`: devices by the name of a deleted pod whose processes still run.
    """
    graded = dict.fromkeys(failed, "Failed") | (health or {})
    devices = [
        {
            "uuid": uuid(prefix or name, number),
            "index": number,
            "model": model,
            "memoryMiB": MEMORY_MIB,
            "health": graded.get(number, "Healthy"),
            "cause": "XID 79" if number in graded else "",
            "resource": resource,
            "simulated": simulated,
        }
        for number in range(gpus)
    ]
    slices = [
        {**devices[number], "uuid": f"MIG-{name}-{number}", "migParent": devices[number]["uuid"]}
        for number in sliced
    ]
    holders = [
        {
            "namespace": "team",
            "name": holder,
            "uid": f"uid-{holder}",
            "devices": msgspec.to_builtins(held),
        }
        for holder, held in (lingering or {}).items()
    ]
    status = {
        "mode": mode,
        "resources": [resource],
        "devices": devices + slices,
        "holders": holders,
    }
    spec = {"maintenance": list(maintenance), "quarantine": list(quarantine)}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": of}
    metadata = {"name": name, "ownerReferences": [owner] if of else []}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, GpuNode)


def whole(node_name, *numbers):
    """These GPUs of a node, each wholly."""
    return tuple(
        DeviceShare(uuid=uuid(node_name, number), percent=100, memory_mib=MEMORY_MIB)
        for number in numbers
    )


def part(node_name, number, *, percent, memory_mib=8192):
    """A share of one GPU of a node."""
    return (DeviceShare(uuid=uuid(node_name, number), percent=percent, memory_mib=memory_mib),)


def share_limits(percent, memory="8Gi", slots=1):
    return {
        names.GPU_SHARE: str(slots),
        names.GPU_PERCENT: str(percent),
        names.GPU_MEMORY: str(memory),
    }


def as_bound(asking, claim):
    """The pod after its Binding, with the annotation that a Binding of this claim carries."""
    metadata, spec = asking.metadata, asking.spec
    annotated = metadata.annotations | annotations(claim)
    return msgspec.structs.replace(
        asking,
        metadata=msgspec.structs.replace(metadata, annotations=annotated),
        spec=msgspec.structs.replace(spec, node_name=claim.placement.node),
    )


def pod(
    name,
    *,
    gpus=1,
    on="",
    devices=None,
    phase="Pending",
    cpu="1",
    worker=None,
    asking=None,
    **metadata,
):
    """A pod; `devices` annotates it, `worker` (job, attempt, index, UID) makes it a GPUJob's.

    `asking`: limits by name, instead of whole GPUs; of several containers a list of them.
    """
    labels, owners = _worker_of(*worker) if worker else ({}, [])
    annotations = {names.DEVICES_ANNOTATION: encode_devices(devices)} if devices else {}
    asked = asking if asking is not None else ({names.GPU: str(gpus)} if gpus else {})
    containers = [
        {"name": f"worker-{number}", "resources": {"limits": {"cpu": cpu} | each}}
        for number, each in enumerate(asked if isinstance(asked, list) else [asked])
    ]
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
            "containers": containers,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(built, objects.Pod)


def gated(name, *, gpus=1, gates=(names.QUEUE_GATE,), spec=None, created=1.0, **changes):
    """A pod behind our gate, as the watch shows it; `spec`: more of its spec."""
    built = msgspec.to_builtins(pod(name, gpus=gpus, **changes))
    built["metadata"] |= {
        "resourceVersion": "7",
        "creationTimestamp": f"2026-01-01T00:00:{created:02.0f}Z",
    }
    built["spec"] |= {"schedulingGates": [{"name": each} for each in gates]} | (spec or {})
    return msgspec.json.decode(msgspec.json.encode(built), type=WatchedPod)


def called(asking, **rules):
    """The pod as kube-scheduler sends it, with these rules about nodes."""
    built = msgspec.to_builtins(asking)
    built["spec"] |= rules
    return msgspec.json.decode(msgspec.json.encode(built), type=pod_request.CalledPod)


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


def job(
    name,
    *,
    attempt=0,
    phase="Pending",
    placed=(),
    version="1",
    uid=None,
    deleted=False,
    namespace="team",
    planned=None,
    kind=PlacedJob,
    shares_pods=None,
    **spec,
):
    """A GPUJob; `placed` holds (node, GPU numbers or devices) per worker, `planned` its pod.

    `shares_pods` is what the entry of its attempt says of its pods; None: there is no entry.
    """
    placement = by_node(
        WorkerPlacement(index, where, _devices(where, held))
        for index, (where, held) in enumerate(placed)
    )
    built = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            **({"deletionTimestamp": "1970-01-01T00:00:00Z"} if deleted else {}),
        },
        "spec": {"gpus": 1, **spec},
        "status": {
            "attempt": attempt,
            "phase": phase,
            "placement": msgspec.to_builtins(placement),
            **({} if planned is None else {"plannedPod": planned}),
            **({} if shares_pods is None else {"attempts": [_entry(attempt, shares_pods)]}),
        },
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=kind)


def _entry(number, shares_pods):
    return {"number": number, "startedAt": moment(0), "sharesPods": shares_pods}


def moment(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def places(plan):
    """Return the place of each worker of a plan, in their order."""
    return by_worker(plan.placement)


def _devices(node_name, held):
    is_numbers = all(isinstance(each, int) for each in held)
    return whole(node_name, *held) if is_numbers else held


def plan_request(
    name,
    *,
    attempt=1,
    workers=1,
    gpus=1,
    pod_spec=None,
    version="1",
    priority=0,
    submitted=0,
    since=None,
    seconds_left=None,
    namespace="team",
    avoid=(),
    created_by="",
    **spec,
):
    """`share=…` asks for shares instead of whole GPUs; `since`: when the job began to wait."""
    asked = {} if "share" in spec else {"gpus": gpus}
    built = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{name}",
        "attempt": attempt,
        "resourceVersion": version,
        "spec": {"workers": workers, **asked, **spec},
        "podSpec": pod_spec or {"containers": [{"name": "worker"}]},
        "priority": priority,
        "submittedAt": moment(submitted),
        "avoid": list(avoid),
        "createdBy": created_by,
        **({} if seconds_left is None else {"secondsLeft": seconds_left}),
        **({} if since is None else {"waitsSince": moment(since)}),
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=PlanRequest)
