# SPDX-License-Identifier: Apache-2.0
"""Batch scripts of Slurm: `#SBATCH` lines and the program of every worker."""

import re
from pathlib import PurePosixPath
from typing import Any, Final

from gpupack_cli.convert.gpus import GpuRequest
from gpupack_cli.convert.job import JobFields, gpujob, job_name
from gpupack_cli.convert.pod import ObjectMeta
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.sbatch_layout import Layout, layout
from gpupack_cli.convert.sbatch_options import header, report_options
from gpupack_cli.convert.sbatch_script import Program, program
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import Script
from gpupack_cli.convert.worker import WorkerTemplate
from gpupack_cli.job_manifest import FOLDER, MAX_SCRIPT_BYTES
from gpupack_crds import names
from gpupack_kubeclient.objects import Json

MAX_ARRAY: Final = 256
"""Maximum jobs of an array: each one is an object."""

SCRIPT: Final = "job.sh"

IMAGE: Final = (
    "give the image with the software of the script: `gpupack convert --image IMAGE`, or "
    "#SBATCH --container-image"
)

_TIME: Final = re.compile(
    r"(?:(?P<days>[0-9]{1,4})-)?(?P<first>[0-9]{1,7})(?::(?P<second>[0-9]{1,2}))?"
    r"(?::(?P<third>[0-9]{1,2}))?"
)
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.IGNORECASE)
_PART: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?(?::([0-9]{1,7}))?")
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def convert(script: Script, settings: Settings, report: Report) -> list[Json]:
    """Return the ConfigMap with the program, and a GPUJob; of an array, one for each index.

    Raises:
        NotConverted: it requests no GPUs, names no image, or has no equivalent.
    """
    options = header(script.text)
    report_options(options, report, where="#SBATCH ")
    found = layout(options, report)
    known = {"SLURM_CPUS_PER_TASK": options.get("cpus-per-task", "1")}
    indices = _array(options, report)
    if indices:
        known |= {"SLURM_ARRAY_TASK_ID": "$ARRAY_INDEX"}
        known |= {"SLURM_ARRAY_TASK_COUNT": str(len(indices))}
    sizes: dict[str, int | None] = {"ntasks": found.workers, "nodes": found.max_nodes or 1}
    sizes["ntasks-per-node"] = found.workers // (found.max_nodes or found.workers)
    run = program(script.text, known, sizes, report)
    image = _image(settings.image or options.get("container-image", "") or run.image)
    if not run.starts_tasks and found.workers > 1:
        report.dropped(
            "script",
            None,
            f"Slurm runs it once, on the first node; all {found.workers} workers run it",
        )
    if len(run.text.encode()) > MAX_SCRIPT_BYTES:
        raise NotConverted("script", None, "it is too large for a ConfigMap; put it into the image")
    name = job_name(options.get("job-name") or PurePosixPath(script.name).stem)
    template = _template(name, run, found, options, image)
    fields = JobFields(
        workers=found.workers,
        processes_per_worker=found.tasks if found.tasks > 1 else None,
        max_nodes=found.max_nodes if found.workers > 1 else None,
        deadline_seconds=_seconds(options.get("time", "")),
        suspend="hold" in options,
    )
    made: list[Json] = [_config_map(name, run)]
    numbers: list[int | None] = [*indices] or [None]
    for index in numbers:
        own = template if index is None else _indexed(template, index)
        metadata = ObjectMeta(name=name if index is None else job_name(f"{name}-{index}"))
        made.append(gpujob(metadata, own, fields, report))
    return made


def _template(
    name: str, run: Program, found: Layout, options: dict[str, str], image: str
) -> WorkerTemplate:
    container: Json = {
        "name": names.WORKER_CONTAINER,
        "image": image,
        "command": [*run.interpreter, f"{FOLDER}/{SCRIPT}"],
        "workingDir": options.get("chdir") or FOLDER,
        "volumeMounts": [
            {"name": "workspace", "mountPath": FOLDER},
            {"name": "script", "mountPath": f"{FOLDER}/{SCRIPT}", "subPath": SCRIPT},
        ],
    }
    if requests := _requests(options, found):
        container["resources"] = {"requests": requests}
    if env := _environment(options.get("export", "")):
        container["env"] = env
    volumes = [
        {"name": "workspace", "emptyDir": {}},
        {"name": "script", "configMap": {"name": name, "defaultMode": 0o555}},
    ]
    (model, *_) = found.models or ("",)
    is_slice = re.fullmatch(names.MIG_PROFILE, model) is not None
    return WorkerTemplate(
        request=GpuRequest(gpus=found.gpus, mig=model if is_slice else ""),
        pod={"containers": [container], "volumes": volumes},
        container=names.WORKER_CONTAINER,
        labels={},
        annotations={},
        models=() if is_slice else found.models,
        restart_policy="Never",
        priority_class="",
        deadline_seconds=None,
    )


def _indexed(template: WorkerTemplate, index: int) -> WorkerTemplate:
    worker = template.worker
    env: list[Any] = worker.get("env", [])
    return template.with_worker(
        worker | {"env": [*env, {"name": "ARRAY_INDEX", "value": str(index)}]}
    )


def _config_map(name: str, run: Program) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {SCRIPT: run.text},
    }


def _image(text: str) -> str:
    """Return an image; enroot separates the registry by `#`."""
    image = text.removeprefix("docker://").replace("#", "/", 1)
    if not image or image.endswith(".sqsh"):
        raise NotConverted("--image", text or None, IMAGE)
    return image


def _requests(options: dict[str, str], found: Layout) -> dict[str, str]:
    """Return CPU and memory of a worker; Slurm counts memory in MiB, by node, CPU or GPU."""
    requests = dict[str, str]()
    cpus = 0
    if per_task := options.get("cpus-per-task"):
        cpus = _positive("cpus-per-task", per_task) * found.tasks
    elif per_gpu := options.get("cpus-per-gpu"):
        cpus = _positive("cpus-per-gpu", per_gpu) * found.gpus
    if cpus:
        requests["cpu"] = str(cpus)
    memory = 0
    if whole := options.get("mem"):
        parts = max(1, found.workers // (found.max_nodes or found.workers))
        memory = _mebibytes("mem", whole) // parts
    elif per_gpu := options.get("mem-per-gpu"):
        memory = _mebibytes("mem-per-gpu", per_gpu) * found.gpus
    elif per_cpu := options.get("mem-per-cpu"):
        memory = _mebibytes("mem-per-cpu", per_cpu) * max(cpus, 1)
    if memory:
        requests["memory"] = f"{memory}Mi"
    return requests


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 20:
        raise NotConverted(f"--{name}", text, "write a number above 0")
    return int(text)


def _mebibytes(name: str, text: str) -> int:
    """Return MiB; 0, as in Slurm, for all memory of a node."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise NotConverted(f"--{name}", text, "write a number and K, M, G or T")
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}[found[2].upper()]
    return round(int(found[1]) * factor)


def _seconds(text: str) -> int | None:
    """Return the seconds of Slurm's time; None: no limit."""
    if not text or text.upper() in {"UNLIMITED", "INFINITE", "0"}:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise NotConverted("--time", text, "write minutes, H:M:S or D-H:M:S")
    first, second, third = (int(found[name] or 0) for name in ("first", "second", "third"))
    if found["days"] is not None:
        seconds = ((int(found["days"]) * 24 + first) * 60 + second) * 60 + third
    elif found["third"] is not None:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    return seconds or None


def _environment(text: str) -> list[Json]:
    """Return the variables that --export sets; ALL and NONE concern the submitting shell."""
    found = (_VARIABLE.fullmatch(each) for each in text.split(","))
    return [{"name": each[1], "value": each[2]} for each in found if each]


def _array(options: dict[str, str], report: Report) -> list[int]:
    """Return the indices of an array job; empty: it is none.

    Raises:
        NotConverted: the text is invalid, or there are too many.
    """
    text = options.get("array", "")
    if not text:
        return []
    listed, percent, _ = text.partition("%")
    if percent:
        report.dropped("#SBATCH --array", text, "the namespace's quota bounds what runs at a time")
    indices = dict[int, None]()
    for part in listed.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise NotConverted("--array", text, "write numbers and ranges, such as 0-15:4")
        start, end, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        many = (end - start) // max(step, 1) + 1
        if not step or len(indices) + many > MAX_ARRAY:
            raise NotConverted(
                "--array", text, f"write a step above 0 and at most {MAX_ARRAY} indices at once"
            )
        indices |= dict.fromkeys(range(start, end + 1, step))
    return list(indices)
