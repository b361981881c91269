# SPDX-License-Identifier: Apache-2.0
"""What-if for a drained node or more GPUs: the same jobs, once with and once without the change.

Both runs use the queue of the cluster (`fair-share`), with the same policy, seed and failures.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from typing import Any, Final

from gpupack_placement import DeviceUuid, Node, NodeName
from gpupack_simulator.engine.maintenance import Drain, Maintenance
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.experiments import Scripted
from gpupack_simulator.inputs.scenario import MAX_GPUS, Scenario
from gpupack_simulator.output import comparison
from gpupack_simulator.output.comparison import Table
from gpupack_simulator.output.digest import digest
from gpupack_simulator.output.results import Json, figures_json
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.quota_comparison import DISCIPLINE
from gpupack_simulator.record import Cause, JobRecord, Run

SCHEMA: Final = "gpupack.dev/simulation-cluster/v1"
NOTE: Final = "one seed; * best of its column"
_ADDITION: Final = re.compile(r"(\d{1,7}) x (\S.*)")
_NAMED: Final = 5
"""Maximum number of jobs that a sentence names; the JSON has all."""


def drain_node(scenario: Scenario, asked: str) -> Scenario:
    """Drain `NODE@TIME`: from that time on all jobs leave the node.

    Raises:
        InvalidParameter: the text is invalid, or there is no such node.
    """
    name, at, when = asked.rpartition("@")
    try:
        time = float(when) if at else -1.0
    except ValueError:
        time = -1.0
    if not (isfinite(time) and time >= 0):
        raise InvalidParameter(f"--drain {asked}: write NODE@TIME, such as node-0@600")
    if name not in {str(node.name) for node in scenario.nodes}:
        raise InvalidParameter(f"--drain {asked}: there is no node {name}")
    entry = Maintenance(NodeName(name), None, time, drain=Drain.ALL)
    return replace(scenario, maintenance=(*scenario.maintenance, entry))


def add_gpus(scenario: Scenario, asked: str) -> Scenario:
    """Add `NUMBER x MODEL` GPUs, on copies of the largest node with only this model.

    Raises:
        InvalidParameter: the text is invalid, or there is no such node.
    """
    found = _ADDITION.fullmatch(asked.strip())
    if found is None or not int(found[1]):
        raise InvalidParameter(f"--more {asked!r}: write NUMBER x MODEL, such as '8 x H100'")
    count, model = int(found[1]), found[2]
    alike = [
        node
        for node in scenario.nodes
        if node.devices and {d.model for d in node.devices} == {model}
    ]
    if not alike:
        models = sorted({d.model for node in scenario.nodes for d in node.devices})
        raise InvalidParameter(
            f"--more {asked!r}: no node has GPUs of model {model} alone; there are: "
            f"{', '.join(models) or 'none'}"
        )
    if count > MAX_GPUS:
        raise InvalidParameter(f"--more {asked!r}: the most are {MAX_GPUS:,} GPUs")
    like = max(alike, key=lambda node: len(node.devices))
    each = len(like.devices)
    made = [
        _additional_nodes(like, n, min(each, count - n * each)) for n in range(ceil(count / each))
    ]
    taken = {node.name for node in scenario.nodes}
    if any(node.name in taken for node in made):
        raise InvalidParameter(f"--more {asked!r}: there is a node {made[0].name} already")
    return replace(scenario, nodes=(*scenario.nodes, *made))


def _additional_nodes(like: Node, number: int, gpus: int) -> Node:
    name = NodeName(f"more-{number}")
    devices = tuple(
        replace(device, uuid=DeviceUuid(f"{name}-gpu-{device.index}"))
        for device in like.devices[:gpus]
    )
    return replace(like, name=name, devices=devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterComparison:
    """A comparison of a scenario with a change of it. `name`: the name of the changed side."""

    today: Scenario
    changed: Scenario
    name: str
    policy: str = "default"
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def runs(self) -> tuple[Run, Run]:
        """Run the scenario as it is, and changed."""
        return self._run("today", self.today), self._run(self.name, self.changed)

    def _run(self, name: str, scenario: Scenario) -> Run:
        scripted = Scripted(replace(scenario, discipline=DISCIPLINE), self.parameters)
        return replace(scripted.run(self.policy, self.seed), policy=name)


def tables(runs: tuple[Run, Run]) -> list[Table]:
    """Return the tables of waits by size and of utilization."""
    digests = [digest(run, pictures=False) for run in runs]
    made = (comparison.overview(digests), comparison.waits(digests))
    return [Table(table.title, table.metrics, table.rows, "cluster") for table in made]


def verdict(runs: tuple[Run, Run]) -> str:
    """Describe how many jobs move, are stopped, lose work and wait longer."""
    before, after = runs
    unit = UNITS[before.time_unit]
    longer, shorter = _waiting_longer(runs), _waiting_longer((after, before))
    stopped = _jobs("stopped for maintenance", _stopped_jobs(after))
    lost, lost_before = _lost_gpu_time(after), _lost_gpu_time(before)
    parts = [
        f"{_jobs('move', _moved_jobs(after))}; {stopped}",
        f"{lost:,.2f} instead of {lost_before:,.2f} {unit.gpu_time} of work are lost",
        f"{_jobs('wait longer', [name for name, _ in longer])}; {len(shorter)} wait shorter",
    ]
    return ". ".join(f"{part[0].upper()}{part[1:]}" for part in parts) + "."


def comparison_json(runs: tuple[Run, Run], parameters: Json) -> Json:
    """Return all compared figures as JSON; names of fields end in their unit."""
    unit = UNITS[runs[0].time_unit]
    sides = {
        name: {
            "figures": figures_json(digest(run, pictures=False).figures, run.time_unit),
            "nodes": len(run.nodes),
            "moved": _moved_jobs(run),
            "stopped_for_maintenance": _stopped_jobs(run),
            f"lost_{unit.gpu_time_key}": round(_lost_gpu_time(run), 6),
        }
        for name, run in zip(("today", "changed"), runs, strict=True)
    }
    longer = {name: round(by, 6) for name, by in _waiting_longer(runs)}
    named = {"schema": SCHEMA, "time_unit": str(runs[0].time_unit), "parameters": parameters}
    return named | sides | {f"wait_longer_{unit.key}": longer}


def _moved_jobs(run: Run) -> list[str]:
    return [str(record.job.id) for record in run.jobs if record.moves]


def _stopped_jobs(run: Run) -> list[str]:
    found = dict.fromkeys(str(loss.job) for loss in run.losses if loss.cause is Cause.DRAINED)
    return list(found)


def _lost_gpu_time(run: Run) -> float:
    return sum(loss.milli_time for loss in run.losses) / UNITS[run.time_unit].per_gpu_time


def _waiting_longer(runs: tuple[Run, Run]) -> list[tuple[str, float]]:
    """Return the jobs that wait longer in the second run and by how much, the longest first."""
    before = {record.job.id: _wait(record) for record in runs[0].jobs}
    changes = ((str(r.job.id), _wait(r) - before.get(r.job.id, 0.0)) for r in runs[1].jobs)
    return sorted((each for each in changes if each[1] > 0), key=lambda each: (-each[1], each[0]))


def _wait(record: JobRecord) -> float:
    return record.wait or 0.0


def _jobs(what: str, names: list[str]) -> str:
    """Return a text such as «2 jobs move (a, b)»."""
    noun = "job" if len(names) == 1 else "jobs"
    more = ", …" if len(names) > _NAMED else ""
    listed = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    return f"{len(names)} {noun} {what}{listed}"
