# SPDX-License-Identifier: Apache-2.0
"""A scenario in YAML: nodes, jobs, failures. Memory in GiB, CPU in cores, times in `timeUnit`.

    timeUnit: step            # or s (seconds)
    until: 10                 # the latest end; left out: when all jobs have ended
    discipline: fifo          # drop, fifo, fifo-skip, backfill, priority, fair-share
    nodes:
      - {name: node1, gpus: 4, model: A100, gpuMemory: 80, cpu: 64, memory: 512, count: 3}
    jobs:
      - {name: train, arrival: 2, gpus: 2, minGpuMemory: 40, workers: 4, duration: 5}
      - {name: notebook, share: {percent: 30, memory: 8}, duration: 100, priority: 5}
      - {name: wide, gpus: 1, workers: 8, minWorkers: 2, duration: 9, efficiency: 0.9}
      - {name: saves, gpus: 2, duration: 50, movable: true, checkpoint: 5, restart: 1}
    failures:
      - {node: node1-0, gpu: 2, at: 3, until: 6}
    maintenance:
      - {node: node1-1, gpus: [0, 1], at: 4, until: 9, drain: All, stopAt: 6}
    failureRates: {gpuBetween: 5000, gpuRepair: 24}
    queue:                    # differences from the discipline
      {halfLife: 3600, fifo: strict, reserveAfter: 300, preemption: {minRuntime: 60, grace: 30},
       durations: learned, maxBackfillDelay: 300,     # exact, learned, walltime, or none
       consolidation: {ratio: 0.25, minWait: 300, maxMoves: 8, cooldown: 3600}}
    cohorts:
      - {name: research, gpus: {H100: 8}, maxRuntime: 86400}
    quotas:
      - {tenant: vision, cohort: research, gpus: {H100: {nominal: 8, lendingLimit: 4}, "*": 2}}
      - {tenant: speech, cohort: research, weight: 3}
    reservations:             # GPUs of a tenant from one time to another; jobs name them
      - {name: lab, tenant: vision, model: H100, gpus: 4, from: 9, to: 17, every: 24, times: 5}

Nodes have, and each worker of a job takes, `resources` besides these, by name: `{rdma/hca: 1}`.

A job with `minWorkers` is elastic: it starts with that many, and takes `duration` with all its
`workers`. Each extra worker adds `efficiency` of a worker's speed. A change of its width costs
`resizePause`. With `growAfter` in `queue` the job grows no sooner than that after a change.

A `movable` job is moved for maintenance, and for other jobs by `consolidation` in `queue`. After a
stop for any reason it continues from its last `checkpoint`, or from the start without one, and
pauses for `restart` first. With `reportsCheckpoints` the queue knows its checkpoints, and counts
only the work since the last one as lost when it chooses victims.

With `gpuModelFallback: {after: 600}` the `gpuModels` of a job are in order of preference: one more
is permitted after each such time of waiting.

`maintenance` is that of a GPUNode: `gpus` (left out: all) get no new work from `at` to `until`.
With `drain: Movable` movable jobs leave them; with `All` the others are stopped as well, at
`stopAt` or at once. Nodes may come later (`joins`), and leave (`leaves`): jobs that run there then
wait again.

A job below a cohort with `maxRuntime` ends when it has run for so long, over all attempts.

Jobs name their `tenant`, and their `user` within it: with `jobOrder: UserFairShare` in the tenant's
quota, jobs of the user who uses least go first. Quotas count GPUs, "*" those of models that no
quota names. A weight is 0, or 0.001 to 1000. A node has plenty of what its entry omits. `count`
makes several nodes, NAME-0 and on. A job does not request what its entry omits; without `duration`
it never ends.

A job with `reservation: lab` uses the GPUs of its tenant's reservation of that name. `nodes` and
`gpusPerNode` reserve whole nodes instead of `gpus`. A tenant reserves at most its nominal quota.
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as with_default
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct, field

from gpupack_placement import DecisionError, Node
from gpupack_queue import Quotas, Window
from gpupack_simulator.disciplines import Discipline, discipline_named
from gpupack_simulator.engine.maintenance import Maintenance, Presence
from gpupack_simulator.errors import SimulatorError
from gpupack_simulator.failures import NEVER, Breakdown, FailureRates
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.quotas import (
    CohortSpec,
    QueueSpec,
    QuotaSpec,
    cohort_of,
    quota_of,
    rules_of,
)
from gpupack_simulator.inputs.reservations import (
    ReservationSpec,
    require_within_quotas,
    reservation_id,
    windows_of,
)
from gpupack_simulator.inputs.specs import (
    FailureSpec,
    JobSpec,
    MaintenanceSpec,
    Name,
    NodeSpec,
    Positive,
    RatesSpec,
    breakdown_of,
    jobs_of,
    maintenance_of,
    nodes_of,
    presence_of,
)
from gpupack_simulator.inputs.typed import fields_of, items, one
from gpupack_simulator.inputs.yamlfile import Document
from gpupack_simulator.job import Job
from gpupack_simulator.record import TimeUnit
from gpupack_simulator.workload import MAX_JOBS

S = TypeVar("S")
T = TypeVar("T")


class _Frame(Struct, rename="camel", forbid_unknown_fields=True):
    """The fields that are not lists; lists are read item by item."""

    time_unit: Literal["step", "s"] = "step"
    until: Positive = inf
    discipline: Name = "fifo"
    requeue: bool = True
    failure_rates: RatesSpec = field(default_factory=RatesSpec)
    queue: QueueSpec = field(default_factory=QueueSpec)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file without faults."""

    name: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    time_unit: TimeUnit = TimeUnit.STEP
    until: float = inf
    discipline: str = "fifo"
    requeue: bool = True
    breakdowns: tuple[Breakdown, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    presence: tuple[Presence, ...] = ()
    rates: FailureRates = NEVER
    queue: QueueSpec = with_default(default_factory=QueueSpec)
    quotas: Quotas = with_default(default_factory=Quotas)
    windows: tuple[Window, ...] = ()

    def rules(self) -> Discipline:
        """Return the rules of the discipline with the scenario's changes."""
        return rules_of(self.queue, discipline_named(self.discipline))


MAX_GPUS: Final = 1_000_000
"""Maximum number of GPUs; a node without any counts as one."""
_LISTS = ("nodes", "jobs", "failures", "maintenance", "quotas", "cohorts", "reservations")


def read_scenario(
    path: Path, *, jobs_from_elsewhere: bool = False, nodes: tuple[Node, ...] | None = None
) -> Scenario:
    """Read a scenario.

    `jobs_from_elsewhere`: it need not name jobs; `nodes`: replace its own.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    reading = Reading(Document(faults), faults)
    scenario = reading.scenario(path.stem, nodes)
    if not scenario.jobs and not jobs_from_elsewhere and not len(faults):
        faults.add(1, "jobs", "a scenario needs at least one job")
    faults.check()
    return scenario


def read_jobs(path: Path) -> tuple[Job, ...]:
    """Read a file that has only `jobs`, as in a scenario.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    reading = Reading(document, faults)
    top = fields_of(document.data, "", document, faults)
    for name in top:
        if name != "jobs":
            faults.add(document.line(str(name)), str(name), "only jobs are expected here")
    jobs = reading.jobs(top.get("jobs"))
    if not jobs and not len(faults):
        faults.add(1, "jobs", "there are none")
    faults.check()
    return jobs


class Reading:
    """A reader of one document; it collects faults."""

    def __init__(self, document: Document, faults: Faults) -> None:
        self._document, self._faults = document, faults
        self._presence: list[Presence] = []

    def scenario(self, name: str, nodes: tuple[Node, ...] | None = None) -> Scenario:
        """Read the whole scenario."""
        top = fields_of(self._document.data, "", self._document, self._faults)
        rest = {key: value for key, value in top.items() if key not in _LISTS}
        frame = one(rest, _Frame, "", self._document, self._faults) or _Frame()
        if nodes is not None and top.get("nodes"):
            self._fault("nodes", "are given by --nodes too; take one of them away")
        nodes = nodes or self.nodes(top.get("nodes"))
        if not nodes and not len(self._faults):
            self._fault("nodes", "a scenario needs at least one node")
        discipline = self._attempt("discipline", lambda: discipline_named(frame.discipline))
        if discipline is not None:
            self._attempt("queue", lambda: rules_of(frame.queue, discipline))
        rates = FailureRates(
            node_between=frame.failure_rates.node_between,
            node_repair=frame.failure_rates.node_repair,
            gpu_between=frame.failure_rates.gpu_between,
            gpu_repair=frame.failure_rates.gpu_repair,
        )
        if rates.any and not isfinite(frame.until):
            self._fault("failureRates", "rates need a time at which the run ends: until")
        return Scenario(
            name=name,
            nodes=nodes,
            jobs=self.jobs(top.get("jobs")),
            time_unit=TimeUnit(frame.time_unit),
            until=frame.until,
            discipline=frame.discipline,
            requeue=frame.requeue,
            breakdowns=self._breakdowns(top.get("failures"), nodes),
            maintenance=self._maintenance(top.get("maintenance"), nodes),
            presence=tuple(self._presence),
            rates=rates,
            queue=frame.queue,
            quotas=(quotas := self.quotas(top)),
            windows=self.windows(top.get("reservations"), quotas),
        )

    def jobs(self, data: Any) -> tuple[Job, ...]:
        """Read the entries, in the order of the file."""
        found: dict[str, Job] = {}
        specs = items(data, JobSpec, "jobs", self._document, self._faults)
        total = sum(spec.count for _, spec in specs)
        if total > MAX_JOBS:
            self._fault("jobs", f"these are {total:,} jobs; the most are {MAX_JOBS:,}")
            return ()
        for path, spec in specs:
            for job in self._attempt(path, lambda spec=spec: tuple(jobs_of(spec))) or ():
                if job.id in found:
                    self._fault(f"{path}.name", f"there is a job {job.id} above")
                found[job.id] = job
        return tuple(found.values())

    def nodes(self, data: Any) -> tuple[Node, ...]:
        """Read the entries, in the order of the file."""
        found: dict[str, Node] = {}
        specs = items(data, NodeSpec, "nodes", self._document, self._faults)
        total = sum(spec.count * max(spec.gpus, 1) for _, spec in specs)
        if total > MAX_GPUS:
            self._fault("nodes", f"these have {total:,} GPUs; the most are {MAX_GPUS:,}")
            return ()
        for path, spec in specs:
            for node in self._attempt(path, lambda spec=spec: tuple(nodes_of(spec))) or ():
                if node.name in found:
                    self._fault(f"{path}.name", f"there is a node {node.name} above")
                found[node.name] = node
            self._presence += self._attempt(path, lambda spec=spec: tuple(presence_of(spec))) or ()
        return tuple(found.values())

    def quotas(self, top: dict[str, Any]) -> Quotas:
        """Read the tree of `quotas` and `cohorts`."""
        quotas = self._made(top.get("quotas"), QuotaSpec, ("quotas", "tenant"), quota_of)
        cohorts = self._made(top.get("cohorts"), CohortSpec, ("cohorts", "name"), cohort_of)
        made = self._attempt("cohorts", lambda: Quotas(tuple(quotas), tuple(cohorts)))
        return made or Quotas()

    def windows(self, data: Any, quotas: Quotas) -> tuple[Window, ...]:
        """Read the entries of `reservations`."""
        specs: dict[str, ReservationSpec] = {}
        for path, spec in items(
            data, ReservationSpec, "reservations", self._document, self._faults
        ):
            name = reservation_id(spec.tenant, spec.name)
            if name in specs:
                self._fault(f"{path}.name", f"there is a reservation {name} above")
            specs[name] = spec
        self._attempt("reservations", lambda: require_within_quotas([*specs.values()], quotas))
        return tuple(window for spec in specs.values() for window in windows_of(spec))

    def _made(
        self, data: Any, into: type[S], called: tuple[str, str], make: Callable[[S], T]
    ) -> list[T]:
        """Read a list; `called`: its name, and the field that must be unique among its entries."""
        (path, field), found = called, dict[str, T]()
        for at, spec in items(data, into, path, self._document, self._faults):
            name, made = getattr(spec, field), self._attempt(at, lambda spec=spec: make(spec))
            if name in found:
                self._fault(f"{at}.{field}", f"there is an entry of {name} above; make them one")
            elif made is not None:
                found[name] = made
        return list(found.values())

    def _breakdowns(self, data: Any, nodes: tuple[Node, ...]) -> tuple[Breakdown, ...]:
        by_name = {str(node.name): node for node in nodes}
        found = []
        for path, spec in items(data, FailureSpec, "failures", self._document, self._faults):
            node = by_name.get(spec.node)
            if node is None:
                self._fault(f"{path}.node", f"there is no node {spec.node}")
            elif spec.gpu is not None and spec.gpu >= len(node.devices):
                has = f"{spec.node} has GPUs 0 to {len(node.devices) - 1}"
                self._fault(f"{path}.gpu", f"{has}, not {spec.gpu}" if node.devices else "no GPUs")
            else:
                broken = self._attempt(path, lambda spec=spec, node=node: breakdown_of(spec, node))
                found += [] if broken is None else [broken]
        return tuple(found)

    def _maintenance(self, data: Any, nodes: tuple[Node, ...]) -> tuple[Maintenance, ...]:
        by_name = {str(node.name): node for node in nodes}
        found = []
        for path, spec in items(data, MaintenanceSpec, "maintenance", self._document, self._faults):
            node = by_name.get(spec.node)
            last = max(spec.gpus or [0])
            if node is None:
                self._fault(f"{path}.node", f"there is no node {spec.node}")
            elif spec.gpus is not None and last >= len(node.devices):
                has = f"{spec.node} has GPUs 0 to {len(node.devices) - 1}"
                self._fault(f"{path}.gpus", f"{has}, not {last}" if node.devices else "no GPUs")
            else:
                made = self._attempt(path, lambda spec=spec, node=node: maintenance_of(spec, node))
                found += [] if made is None else [made]
        return tuple(found)

    def _attempt(self, path: str, make: Any) -> Any:
        """Return what `make` builds; an error of what decides becomes a fault."""
        try:
            return make()
        except (DecisionError, SimulatorError) as error:
            self._fault(path, str(error))
            return None

    def _fault(self, path: str, message: str) -> None:
        self._faults.add(self._document.line(path), path, message)
