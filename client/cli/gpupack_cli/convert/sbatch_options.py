# SPDX-License-Identifier: Apache-2.0
"""The options of sbatch and srun: their names, and which of them a conversion reads."""

import dataclasses
import re
import shlex
from collections.abc import Iterator
from typing import Final

from gpupack_cli.convert.report import NotConverted, Report

SHORT: Final = {
    "A": "account",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "C": "constraint",
    "d": "dependency",
    "D": "chdir",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "K": "kill-on-bad-exit",
    "l": "label",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "O": "overcommit",
    "p": "partition",
    "q": "qos",
    "Q": "quiet",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "u": "unbuffered",
    "v": "verbose",
    "w": "nodelist",
    "W": "wait",
    "x": "exclude",
}

FLAGS: Final = frozenset(
    {
        "contiguous",
        "exclusive",
        "get-user-env",
        "hold",
        "ignore-pbs",
        "kill-on-bad-exit",
        "label",
        "no-kill",
        "nice",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "pty",
        "quiet",
        "reboot",
        "requeue",
        "spread-job",
        "stepmgr",
        "test-only",
        "unbuffered",
        "use-min-nodes",
        "verbose",
        "wait",
    }
)
"""Options that need no value; some take one after an equals sign."""

READ: Final = frozenset(
    {
        "array",
        "chdir",
        "container-image",
        "cpus-per-gpu",
        "cpus-per-task",
        "export",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "hold",
        "job-name",
        "mem",
        "mem-per-cpu",
        "mem-per-gpu",
        "nodes",
        "ntasks",
        "ntasks-per-gpu",
        "ntasks-per-node",
        "requeue",
        "time",
    }
)
"""Options that become a part of the GPUJob."""

NOTED: Final = {
    "account": "the job counts against the GPUQuota of its namespace",
    "error": "logs are read with `gpupack logs`",
    "get-user-env": "a container has the variables of its image and of env",
    "kill-on-bad-exit": "a worker that fails ends the attempt of all workers",
    "label": "`gpupack logs` shows the worker of each line",
    "mail-type": "watch the job, or use alerts of the cluster",
    "mail-user": "watch the job, or use alerts of the cluster",
    "mpi": "workers find one another by MASTER_ADDR and RANK",
    "open-mode": "logs are read with `gpupack logs`",
    "output": "logs are read with `gpupack logs`",
    "parsable": "`kubectl apply` prints the job",
    "quiet": "",
    "unbuffered": "set PYTHONUNBUFFERED for programs in Python",
    "verbose": "",
}
"""Options that gpupack replaces, or that have no effect."""

DROPPED: Final = {
    "begin": "apply the manifest at that time",
    "clusters": "apply the manifest to that cluster",
    "constraint": "use gpuModels, or template.spec.nodeSelector with a label of the nodes",
    "container-mounts": "mount a volume: template.spec.volumes",
    "cpu-bind": "the kubelet's CPU policy applies",
    "deadline": "use activeDeadlineSeconds, which counts from the start",
    "dependency": "apply this job when the other one has ended",
    "exclude": "use node affinity in template.spec.affinity",
    "exclusive": "request all GPUs of a node; CPUs and memory are counted by the pods' requests",
    "input": "mount a volume and read the file",
    "licenses": "gpupack counts no licences",
    "nice": "use spec.priority or priorityClassName",
    "no-requeue": "a preempted job, or one whose node fails, goes back to the queue",
    "nodelist": "use template.spec.nodeSelector with a label of the nodes",
    "partition": "use gpuModels, or template.spec.nodeSelector with a label of the nodes",
    "prefer": "use node affinity in template.spec.affinity",
    "priority": "use priorityClassName",
    "qos": "use priorityClassName; quotas are those of the namespace",
    "reservation": "use a GPUQuota with a lendingLimit",
    "signal": "workers get SIGTERM before they end; set terminationGracePeriodSeconds",
    "switches": "use spec.spread",
    "time-min": "activeDeadlineSeconds is the limit",
    "tmp": "request ephemeral-storage in the container's resources",
}
"""Options whose effect is lost, with what to do instead."""

OTHER: Final = "the conversion does not know this option"

_WORD: Final = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
_COMMENT: Final = re.compile(r"[ \t]#.*$")
_SPACE: Final = re.compile(r"(?:[ \t]|\\\n)+")


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A command line of srun.

    Attributes:
        options: its options, with long names.
        program: the text after the options.
    """

    options: dict[str, str]
    program: str


def header(text: str) -> dict[str, str]:
    """Return the options of a script's `#SBATCH` lines, with long names.

    As in Slurm, lines after the first command do not count, and the last value of an option does.

    Raises:
        NotConverted: a line cannot be parsed.
    """
    found = dict[str, str]()
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if not stripped.startswith("#SBATCH"):
            continue
        words = stripped.removeprefix("#SBATCH")
        if words.strip() in {"hetjob", "packjob"}:
            raise NotConverted(
                f"line {number}", words, "a heterogeneous job; write a GPUJob for each part"
            )
        try:
            split = shlex.split(_COMMENT.sub("", words))
        except ValueError as error:
            raise NotConverted(f"line {number}", words, f"the line is invalid: {error}") from error
        found |= dict(_options(split))
    return found


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, value = _option(word)
        if value is None and name not in FLAGS and rest:
            value = rest.pop(0)
        yield name, value or ""


def _option(word: str) -> tuple[str, str | None]:
    """Return the long name and the value in the same word; None: it has none."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    name = SHORT.get(word[1:2], word[1:2])
    value = word[2:].removeprefix("=")
    return name, value or None


def call(text: str) -> Call:
    """Return the options and the program of the text after `srun`."""
    options, place = dict[str, str](), 0
    while True:
        place = _after_space(text, place)
        word = _WORD.match(text, place)
        if word is None or not word[0].startswith("-"):
            return Call(options, text[place:])
        place = word.end()
        name, value = _option(word[0])
        if value is None and name not in FLAGS:
            inner = _WORD.match(text, _after_space(text, place))
            if inner is not None:
                value, place = inner[0], inner.end()
        options[name] = (value or "").strip("'\"")


def _after_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return space.end() if space else place


def report_options(options: dict[str, str], report: Report, *, where: str) -> None:
    """Report the options that no field of a GPUJob replaces."""
    for name, value in options.items():
        path = f"{where}--{name}"
        if name in NOTED:
            if NOTED[name]:
                report.note(path, value, NOTED[name])
        elif name in DROPPED:
            report.dropped(path, value, DROPPED[name])
        elif name not in READ:
            report.dropped(path, value, OTHER)
