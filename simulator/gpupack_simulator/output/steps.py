# SPDX-License-Identifier: Apache-2.0
"""The cluster at one instant, for a terminal: every node, every GPU with its holders, every job."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpupack_placement import WHOLE_GPU, Cluster, Device, Health, Holder, Node
from gpupack_placement.reasons import count_text, request_text
from gpupack_simulator.job import Job, job_of
from gpupack_simulator.output.groups import NAMED, kind
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.record import End, JobRecord, State, TimeUnit

JOBS = 40
"""Maximum number of jobs in the table; if there are more, only this many waiting ones are named."""
BAR = 10
"""Length of a full bar in letters."""
COLOURS = {
    End.RUNNING: "green",
    End.WAITING: "yellow",
    End.SUCCEEDED: "dim",
    End.DROPPED: "red",
    End.KILLED: "red",
    End.TIMED_OUT: "red",
    End.CANCELLED: "dim",
}


def show(state: State) -> RenderableType:
    """Return what the step mode prints after each step."""
    return Group(Text(headline(state), style="bold"), _nodes(state.cluster), _jobs(state), Text(""))


def headline(state: State) -> str:
    """Return a text such as «after step 3, fgd: 8 of 14 GPUs allocated (57%), 1 job waits»."""
    unit = UNITS[state.time_unit]
    if state.time_unit is TimeUnit.STEP:
        when = f"after step {state.time:g}" if state.time else "at the start"
    else:
        when = f"at {state.time:g} {unit.short}"
    sample = state.sample
    used, whole = sample.allocated_milli / WHOLE_GPU, sample.capacity_milli / WHOLE_GPU
    percent = 100 * used / whole if whole else 0.0
    queued = sample.queued_jobs
    waiting = f"{count_text(queued, 'job')} {'waits' if queued == 1 else 'wait'}"
    return (
        f"{when}, {state.policy}: {used:g} of {count_text(round(whole), 'GPU')} allocated "
        f"({percent:.0f}%), {waiting}"
    )


def _nodes(cluster: Cluster) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    nodes = cluster.nodes()
    if len(nodes) > NAMED:
        return _kinds(table, cluster)
    table.add_column("node", no_wrap=True)
    for title in ("GPUs", "free", "allocated"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("each GPU: busy or free", overflow="fold")
    for node in nodes:
        free, used = _free(cluster, node), _used(cluster, [node])
        gpus = len(node.devices)
        table.add_row(node.name, str(gpus), f"{free:g}", _bar(used, gpus), _gpus(cluster, node))
    return table


def _kinds(table: Table, cluster: Cluster) -> Table:
    """Fill the table with one line per kind of node."""
    for title in ("nodes", "kind", "GPUs", "free", "allocated"):
        table.add_column(title, justify="left" if title == "kind" else "right", no_wrap=True)
    found: dict[str, list[Node]] = {}
    for node in cluster.nodes():
        found.setdefault(kind(node), []).append(node)
    for name, nodes in sorted(found.items(), key=lambda item: -len(item[1])):
        gpus = sum(len(node.devices) for node in nodes)
        free = sum(_free(cluster, node) for node in nodes)
        bar = _bar(_used(cluster, nodes), gpus)
        table.add_row(f"{len(nodes):,}", name, f"{gpus:,}", f"{free:,g}", bar)
    return table


def _gpus(cluster: Cluster, node: Node) -> Text:
    text = Text()
    for number, device in enumerate(node.devices):
        text.append("  " if number else "").append(f"{device.index}:", style="dim")
        text.append(*_holders(cluster, node, device))
    return text


def _holders(cluster: Cluster, node: Node, device: Device) -> tuple[str, str]:
    """Return the holders of a device, and the colour of this text."""
    holders = cluster.holders_of(node=node.name, uuid=device.uuid)
    held = " + ".join(_held(cluster, holder, device) for holder in holders)
    if not node.ready or device.health is not Health.HEALTHY:
        return f"out-of-order{f' ({held})' if held else ''}", "red"
    return (held, "bold cyan") if held else ("free", "green")


def _held(cluster: Cluster, holder: Holder, device: Device) -> str:
    """Return a text such as «job1», «job2 30%»; holders of a snapshot have their own name."""
    placement = cluster.placement_of(holder)
    grants = placement.devices if placement else ()
    milli = sum(grant.milli for grant in grants if grant.uuid == device.uuid)
    name = job_of(holder) or holder
    return f"{name} {milli / 10:g}%" if milli < WHOLE_GPU else str(name)


def _free(cluster: Cluster, node: Node) -> float:
    """Return the number of GPUs that new work may take."""
    free = sum(device.milli for device in cluster.free_devices(node.name)) / WHOLE_GPU
    return free if node.ready else 0.0


def _used(cluster: Cluster, nodes: Sequence[Node]) -> float:
    rows = [row for node in nodes if (row := cluster.row(node.name)) is not None]
    return float(cluster.arrays.used_milli[rows].sum()) / WHOLE_GPU


def _bar(used: float, gpus: int) -> str:
    if not gpus:
        return "-"
    full = round(BAR * used / gpus)
    return f"{'#' * full}{'.' * (BAR - full)} {100 * used / gpus:3.0f}%"


def _jobs(state: State) -> RenderableType:
    if len(state.jobs) + len(state.expected) <= JOBS:
        shown, rest = list(state.jobs), list(state.expected)
        return _job_table(state, shown, rest)
    ends = Counter(record.end for record in state.jobs)
    counts = ", ".join(f"{ends[end]:,} {end}" for end in End if ends[end])
    more = f"; {len(state.expected):,} have not arrived" if state.expected else ""
    waiting = [record for record in state.jobs if record.end is End.WAITING]
    summary = Text(f"{count_text(len(state.jobs), 'job')} so far: {counts or 'none'}{more}")
    return Group(summary, _job_table(state, waiting[:JOBS], [])) if waiting else summary


def _job_table(state: State, records: Sequence[JobRecord], expected: Sequence[Job]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("job", no_wrap=True)
    table.add_column("requests")
    table.add_column("state")
    table.add_column("on")
    for record in records:
        state_of = Text(_state(record, state), style=COLOURS[record.end])
        nodes = dict.fromkeys(placement.node for placement in record.placements)
        table.add_row(record.job.id, _asks(record.job), state_of, ", ".join(nodes))
    for job in expected:
        table.add_row(job.id, _asks(job), Text(f"arrives at {job.arrival:g}", style="dim"), "")
    return table


def _asks(job: Job) -> str:
    """Return a text such as «2 x 4 GPUs, 16,384 MiB each, A100»."""
    workers = f"{job.workers} x " if job.workers > 1 else ""
    memory = f", {job.request.min_memory:,} MiB each" if job.request.min_memory else ""
    models = f", {' or '.join(job.request.models)}" if job.request.models else ""
    return f"{workers}{request_text(job.request)}{memory}{models}"


def _state(record: JobRecord, state: State) -> str:
    short = UNITS[state.time_unit].short
    match record.end:
        case End.RUNNING:
            since = state.time - (record.started or 0.0)
            return f"runs, {since:g} of {record.job.duration:g} {short} done"
        case End.WAITING:
            again = " again," if record.attempts else ""
            why = f": {record.reason}" if record.reason else ""
            return f"waits{again} since {record.submitted:g}{why}"
        case End.SUCCEEDED:
            return f"succeeded at {record.ended:g} after a wait of {record.wait or 0.0:g}"
        case End.DROPPED:
            return f"dropped{f': {record.reason}' if record.reason else ''}"
        case End.CANCELLED | End.TIMED_OUT:
            return f"{record.end.replace('-', ' ')} at {record.ended:g}"
        case End.KILLED:
            return f"killed at {record.ended:g}{f': {record.reason}' if record.reason else ''}"
