# SPDX-License-Identifier: Apache-2.0
"""An accountant in a process that can be killed, and objects as the API server would show them.

Moments are seconds since `DAY`, a midnight.
"""

import datetime as dt

import msgspec
from extender_builders import OBSERVED, gpu_node, node, pod, whole

from gpupack_apiserver.accounts.claim_tracker import ClaimTracker
from gpupack_apiserver.accounts.inventory import Inventory
from gpupack_apiserver.accounts.meter import Meter
from gpupack_apiserver.accounts.readings import NoReadings
from gpupack_apiserver.accounts.store import Store
from gpupack_apiserver.accounts.stores import GpuJobStore, GpuStore, NodeStore, PodStore
from gpupack_apiserver.accounts.usage_recorder import UsageRecorder
from gpupack_apiserver.shown_job import ShownJob
from gpupack_cost import Group, Prices, statement
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.ledger import Ledger

DAY = 1_790_000_000 // 86_400 * 86_400
"""A midnight (UTC)."""

METER_SECONDS = 30.0


class Accounts:
    """Two nodes of four H100. `there`: what the API server holds, by kind and key."""

    def __init__(self, path, *, prices=None, currency="EUR", retention_days=400):
        self.path, self.prices, self.currency = (
            path,
            {"*": 1.0} if prices is None else prices,
            currency,
        )
        self.retention = retention_days * 86_400.0
        self.time, self.fresh, self.cohorts = 0.0, True, {}
        self.readings, self.monotonic = NoReadings(), 0.0
        self.there = {"nodes": {}, "gpus": {}, "pods": {}, "jobs": {}}
        for name in ("a", "b"):
            self.there["nodes"][name] = node(name)
            self.there["gpus"][name] = gpu_node(name)
        self.start()

    def now(self):
        return DAY + self.time

    def start(self):
        """A process begins: it reads its file, and lists what there is."""
        ledger = Ledger(lambda: self.time, observed_resources=(OBSERVED,))
        self.cluster = ledger.cluster
        inventory = Inventory(ledger.cluster)
        self.tracker = ClaimTracker(
            inventory, lambda name: self.cohorts.get(name, ""), (OBSERVED,), now=self.now
        )
        self.store = Store(self.path)
        tariffs = self.store.update_tariffs(self.currency, Prices(self.prices), self.now())
        self.recorder = UsageRecorder(
            self.tracker,
            self.store,
            tariffs,
            retention_seconds=self.retention,
            now=self.now,
            is_fresh=lambda: self.fresh,
        )
        self.recorder.restore()
        self.meter = Meter(
            self.recorder,
            ledger.cluster,
            self.readings,
            seconds=METER_SECONDS,
            monotonic=lambda: self.monotonic,
        )
        self.stores = {
            "nodes": NodeStore(ledger, self.tracker),
            "gpus": GpuStore(ledger, self.tracker),
            "pods": PodStore(self.tracker),
            "jobs": GpuJobStore(self.tracker),
        }
        for kind, store in self.stores.items():
            store.replace(list(self.there[kind].values()))

    def kill(self):
        """Stop as after SIGKILL: nothing more is written."""
        self.store.close()

    def restart(self, *, lose_file=False):
        self.kill()
        if lose_file:
            for each in self.path.parent.glob(f"{self.path.name}*"):
                each.unlink()
        self.start()

    def show(self, kind, item, *, seen=True):
        """It appeared or changed; not `seen`: the process is away."""
        self.there[kind][_key(item)] = item
        if seen:
            self.stores[kind].upsert(item)
            self.recorder.flush()

    def delete(self, kind, item, *, seen=True):
        self.there[kind].pop(_key(item))
        if seen:
            self.stores[kind].remove(item)
            self.recorder.flush()

    def at(self, moment):
        """Time passes, and what is due is written."""
        self.time = moment
        self.recorder.flush()

    def look(self, seconds=METER_SECONDS):
        """The meter looks after so many seconds."""
        self.time += seconds
        self.monotonic += seconds
        self.meter.measure()

    def lines(self, by=Group.JOB, *, since=0, until=None):
        """Lines of a statement over whole hours."""
        start, end = DAY + since, DAY + (30 * 86_400 if until is None else until)
        reader = self.recorder.reader()
        live = self.recorder.amounts(self.recorder.open_periods(start, end))
        read = reader.jobs if by is Group.JOB else reader.sums
        entries = [*read(start, end, None), *live]
        reader.close()
        return statement(entries, by, self.recorder.tariffs)

    def seconds(self, by=Group.JOB, **period):
        """GPU-seconds by name; what came to nothing is left out."""
        lines = self.lines(by, **period)
        found = {
            _name(line, by): line.amounts.allocated / 1000
            for line in lines
            if abs(line.amounts.allocated) > 0
        }
        return {name: round(seconds, 6) for name, seconds in found.items()}


def bound_pod(
    name, *, on="a", devices=None, gpus=1, bound=0.0, ended=None, phase=None, running=False, **more
):
    """A pod that has its GPUs since `bound`."""
    held = whole(on, *range(gpus)) if devices is None else devices
    built = msgspec.to_builtins(pod(name, gpus=gpus, on=on, devices=held or None, **more))
    state = (
        {"running": {}} if ended is None or running else {"terminated": {"finishedAt": when(ended)}}
    )
    built["status"] = {
        "phase": phase or ("Running" if ended is None else "Succeeded"),
        "startTime": when(bound + 1),
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": when(bound)}
        ],
        "containerStatuses": [{"name": "worker", "state": state}],
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=objects.Pod)


def gpu_job(
    name,
    *,
    attempts=(),
    placed=(),
    phase="Running",
    namespace="team",
    spec=None,
    shares_pods=False,
):
    """A GPUJob; `placed` are (node, devices) by worker.

    `attempts` are (started, finished or None), and when the last worker ended, where that is known.
    """
    workers = [WorkerPlacement(i, where, devices) for i, (where, devices) in enumerate(placed)]
    built = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"gpus": 1, "workers": max(len(placed), 1)} | (spec or {}),
        "status": {
            "phase": phase,
            "attempt": len(attempts),
            "placement": msgspec.to_builtins(by_node(workers)),
            "attempts": [
                {
                    "number": number,
                    "startedAt": when(started),
                    **({} if finished is None else {"finishedAt": when(finished)}),
                    **({"endedAt": when(ended[0])} if ended else {}),
                    "nodes": "a +1",
                    **({"sharesPods": True} if shares_pods else {}),
                }
                for number, (started, finished, *ended) in enumerate(attempts, 1)
            ],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=ShownJob)


def moment(seconds):
    return dt.datetime.fromtimestamp(DAY + seconds, dt.UTC)


def when(seconds):
    return moment(seconds).isoformat().replace("+00:00", "Z")


def _key(item):
    return item.metadata.uid or item.metadata.name


def _name(line, by):
    match by:
        case Group.JOB:
            return line.job
        case Group.NAMESPACE:
            return line.tenant
        case Group.COHORT:
            return line.cohort
        case Group.MODEL:
            return line.model
