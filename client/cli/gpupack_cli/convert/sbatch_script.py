# SPDX-License-Identifier: Apache-2.0
"""The text of a batch script as the program of every worker.

In Slurm the script runs once, and srun starts its program for each task. In a GPUJob every worker
runs the script, with the program in place of `srun program`.
"""

import dataclasses
import re
import shlex
from typing import Final

from gpupack_cli.convert.report import Report
from gpupack_cli.convert.sbatch_options import call, report_options

VARIABLES: Final = {
    "SLURM_ARRAY_JOB_ID": "$GPUPACK_JOB",
    "SLURM_GPUS_ON_NODE": "$GPUPACK_GPUS",
    "SLURM_GPUS_PER_NODE": "$GPUPACK_GPUS",
    "SLURM_JOBID": "$GPUPACK_JOB",
    "SLURM_JOB_ID": "$GPUPACK_JOB",
    "SLURM_JOB_NAME": "$GPUPACK_JOB",
    "SLURM_JOB_NUM_NODES": "$GPUPACK_WORKERS",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "$GPUPACK_WORKERS",
    "SLURM_NODEID": "$GPUPACK_WORKER_INDEX",
    "SLURM_NPROCS": "$GPUPACK_WORKERS",
    "SLURM_NTASKS": "$GPUPACK_WORKERS",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_PROCID": "$GPUPACK_WORKER_INDEX",
    "SLURM_RESTART_COUNT": "$((GPUPACK_ATTEMPT - 1))",
    "SLURM_SUBMIT_DIR": "$PWD",
}
"""Values of Slurm's variables in a worker: each is a task on a node of its own."""

COMMANDS: Final = {
    "mpirun": "set distributed.backend to mpi, and the program of a rank as the worker's command",
    "mpiexec": "set distributed.backend to mpi, and the program of a rank as the worker's command",
    "module": "the image contains the software",
    "ml": "the image contains the software",
    "sbatch": "a worker cannot submit jobs without an account of the cluster",
    "scontrol": "MASTER_ADDR has the host of worker 0; GPUPACK_WORKERS is the number of workers",
    "sinfo": "a worker does not see the cluster's nodes",
    "squeue": "use `gpupack queue`",
    "sacct": "use `gpupack cost`",
    "sbcast": "put the file into the image or a volume",
    "srun": "only a line that begins with srun is converted",
}
"""Commands that a container lacks, with what to do instead."""

STEP_SIZE: Final = frozenset({"nodes", "ntasks", "ntasks-per-node", "nodelist", "overlap"})
SILENT: Final = frozenset({"export", "mpi", "unbuffered", "label", "kill-on-bad-exit"})
"""Options of srun that have no meaning for the program in a worker."""

_SRUN: Final = re.compile(r"^([ \t]*(?:exec |time )?)srun(?=[ \t])", re.MULTILINE)
_STATEMENT_END: Final = re.compile(r"(?<!\\)\n")
_VARIABLE: Final = re.compile(r"\bSLURM_[A-Z_]+\b")
_NODE_LIST: Final = "MASTER_ADDR has the host of worker 0; there is no list of nodes"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A converted script.

    Attributes:
        text: the script of every worker.
        interpreter: words of its first line; bash if it has none.
        image: image that srun's options name; empty: none.
        starts_tasks: srun started the program for each task.
    """

    text: str
    interpreter: tuple[str, ...]
    image: str
    starts_tasks: bool


def program(
    text: str, settings: dict[str, str], sizes: dict[str, int | None], report: Report
) -> Program:
    """Return the program of a script.

    Args:
        text: the script.
        settings: values of further variables of Slurm.
        sizes: sizes of a step of srun that is the whole job, by option.
        report: gets what a worker lacks.
    """
    first, _, rest = text.partition("\n")
    interpreter = tuple(shlex.split(first[2:])) if first.startswith("#!") else ()
    body = rest if interpreter else text
    image, converted, count = _without_srun(body, sizes, report)
    _report_commands(converted, report)
    values = VARIABLES | settings
    used = sorted(set(_VARIABLE.findall(converted)))
    for name in used:
        if name not in values:
            report.dropped(f"${name}", None, _NODE_LIST if "NODELIST" in name else "it is not set")
    exports = [f'export {name}="{values[name]}"' for name in used if name in values]
    head = [first] if interpreter else ["#!/bin/bash"]
    lines = [*head, *_header_lines(converted), *exports, _body_lines(converted)]
    return Program("\n".join(lines), interpreter or ("/bin/bash",), image, count > 0)


def _header_lines(body: str) -> list[str]:
    return _split_header(body)[0]


def _body_lines(body: str) -> str:
    return "\n".join(_split_header(body)[1]) + "\n"


def _split_header(body: str) -> tuple[list[str], list[str]]:
    """Return the comment lines at the beginning, which hold the options, and the other lines."""
    lines = body.rstrip("\n").split("\n")
    end = next(
        (place for place, line in enumerate(lines) if line.strip() and line.lstrip()[0] != "#"),
        len(lines),
    )
    return lines[:end], lines[end:]


def _without_srun(body: str, sizes: dict[str, int | None], report: Report) -> tuple[str, str, int]:
    """Return srun's image, the text with programs in place of srun, and the number of calls."""
    image, count, place = "", 0, 0
    parts = list[str]()
    for match in _SRUN.finditer(body):
        if match.start() < place:
            continue
        count += 1
        ending = _STATEMENT_END.search(body, match.end())
        end = ending.start() if ending else len(body)
        found = call(body[match.end() : end])
        line = f"line {body.count(chr(10), 0, match.start()) + 2}: srun "
        image = found.options.get("container-image", image)
        size = sorted(
            name
            for name in STEP_SIZE & found.options.keys()
            if found.options[name] != str(sizes.get(name))
        )
        if size:
            report.dropped(
                f"{line}{' '.join(f'--{each}' for each in size)}",
                None,
                "every worker runs the line",
            )
        if found.program.rstrip().endswith("&"):
            report.dropped(line, found.program, "every worker runs the line, in the background")
        others = {
            name: value for name, value in found.options.items() if name not in STEP_SIZE | SILENT
        }
        report_options(others, report, where=line)
        parts += body[place : match.start()], match[1], found.program
        place = end
    return image, "".join([*parts, body[place:]]), count


def _report_commands(body: str, report: Report) -> None:
    for number, line in enumerate(body.split("\n"), start=2):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        for name, advice in COMMANDS.items():
            if re.search(rf"(?:^|[;&|(`]\s*){name}\s", f"{stripped} "):
                report.dropped(f"line {number}", stripped, advice)
