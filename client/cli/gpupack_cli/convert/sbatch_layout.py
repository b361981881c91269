# SPDX-License-Identifier: Apache-2.0
"""Tasks and nodes of Slurm as workers with GPUs.

Each task becomes a worker with the GPUs that it has: srun starts a process for each task, and
gpupack starts the program once in each worker.
"""

import dataclasses
import re
from typing import Final

from gpupack_cli.convert.gpus import is_model
from gpupack_cli.convert.report import NotConverted, Report

MAX_NUMBER: Final = 100_000

NO_GPU: Final = "the script requests no GPU; a GPUJob's workers have GPUs"

_COUNT: Final = re.compile(r"(?:(?P<type>[^:=,()]+)[:=])?(?P<count>[0-9]{1,6})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Workers and their GPUs.

    Attributes:
        workers: number of workers.
        gpus: GPUs of each.
        tasks: tasks of each worker, which its program starts; 1: it is the task.
        max_nodes: number of nodes that the script requests; None: it names none.
        models: GPU models.
    """

    workers: int
    gpus: int
    tasks: int = 1
    max_nodes: int | None = None
    models: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Gpus:
    count: int
    model: str


def layout(options: dict[str, str], report: Report) -> Layout:
    """Return the workers that a script's options describe.

    Raises:
        NotConverted: it requests no GPUs, or the numbers have no equivalent.
    """
    nodes = _nodes(options, report)
    per_node = _gpus(options, "gpus-per-node", report) or _gres(options, report)
    total = _gpus(options, "gpus", report)
    per_task = _gpus(options, "gpus-per-task", report)
    if "gpus-per-socket" in options:
        raise NotConverted("--gpus-per-socket", options["gpus-per-socket"], "use --gpus-per-node")
    found = per_task or per_node or total
    if found is None or not found.count:
        raise NotConverted("#SBATCH", None, NO_GPU)
    models = (found.model,) if is_model(found.model) else ()
    tasks = _tasks(options, nodes, per_node, total)
    if per_task:
        return Layout(
            workers=tasks or _divided(total, per_task, options),
            gpus=per_task.count,
            max_nodes=nodes,
            models=models,
        )
    known = nodes or 1
    gpus = per_node.count * known if per_node else found.count
    return dataclasses.replace(
        _split(gpus, tasks or known, known, report), max_nodes=nodes, models=models
    )


def _split(gpus: int, tasks: int, nodes: int, report: Report) -> Layout:
    """Divide all GPUs among tasks; where that leaves a rest, among nodes."""
    if gpus % tasks == 0:
        return Layout(workers=tasks, gpus=gpus // tasks)
    if gpus % nodes or tasks % nodes:
        raise NotConverted(
            "--ntasks", tasks, f"{gpus} GPUs cannot be divided among {tasks} tasks of equal size"
        )
    report.dropped(
        "--ntasks-per-node",
        tasks // nodes,
        f"a worker has the {gpus // nodes} GPUs of a node; its program starts the tasks",
    )
    return Layout(workers=nodes, gpus=gpus // nodes, tasks=tasks // nodes)


def _tasks(
    options: dict[str, str], nodes: int | None, per_node: _Gpus | None, total: _Gpus | None
) -> int | None:
    """Return the number of all tasks; None: the options name none."""
    if "ntasks" in options:
        return _number(options, "ntasks")
    if "ntasks-per-node" in options:
        return _number(options, "ntasks-per-node") * (nodes or 1)
    if "ntasks-per-gpu" in options:
        gpus = per_node.count * (nodes or 1) if per_node else total.count if total else 0
        return _number(options, "ntasks-per-gpu") * gpus or None
    return nodes


def _divided(total: _Gpus | None, per_task: _Gpus, options: dict[str, str]) -> int:
    if total is None:
        return 1
    if not per_task.count or total.count % per_task.count:
        raise NotConverted("--gpus", options["gpus"], "no multiple of --gpus-per-task")
    return total.count // per_task.count


def _nodes(options: dict[str, str], report: Report) -> int | None:
    text = options.get("nodes")
    if text is None:
        return None
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()) or not 0 < int(least) < MAX_NUMBER:
        raise NotConverted("--nodes", text, "write a number of nodes")
    if dash and int(most) > int(least):
        report.dropped("--nodes", text, f"{least}: minWorkers and workers make a job elastic")
    return int(least)


def _number(options: dict[str, str], name: str) -> int:
    text = options[name]
    if not text.isdecimal() or not 0 < int(text) < MAX_NUMBER:
        raise NotConverted(f"--{name}", text, "write a number above 0")
    return int(text)


def _gpus(options: dict[str, str], name: str, report: Report) -> _Gpus | None:
    text = options.get(name)
    if not text:
        return None
    first, *rest = text.split(",")
    if rest:
        report.dropped(f"--{name}", text, "all workers have GPUs of the first type")
    found = _COUNT.fullmatch(first)
    if found is None:
        raise NotConverted(f"--{name}", text, "write [type:]number")
    return _Gpus(int(found["count"]), found["type"] or "")


def _gres(options: dict[str, str], report: Report) -> _Gpus | None:
    """Return the GPUs of gres, each `gpu[:type][:count]`; other resources are reported."""
    found: _Gpus | None = None
    for each in filter(None, options.get("gres", "").split(",")):
        name, _, rest = each.removeprefix("gres/").partition(":")
        if name != "gpu":
            is_part = name in {"mps", "shard"}
            advice = "write spec.share" if is_part else "request it in the container's resources"
            report.dropped("--gres", each, advice)
            continue
        if found is not None:
            report.dropped("--gres", each, "all workers have GPUs of the first type")
            continue
        counted = _COUNT.fullmatch(rest)
        if counted is None and ":" in rest:
            raise NotConverted("--gres", each, "write gpu[:type][:number]")
        found = _Gpus(int(counted["count"]), counted["type"] or "") if counted else _Gpus(1, rest)
    return found
