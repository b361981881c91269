# SPDX-License-Identifier: Apache-2.0
"""The GPUJob, and the ConfigMap of its scripts, that `submit` makes from a command line."""

import dataclasses
import re
import secrets
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpupack_cli.errors import InputInvalid, UsageInvalid
from gpupack_crds import names
from gpupack_crds.kinds import owner_reference
from gpupack_kubeclient.objects import Json

FOLDER: Final = "/workspace"
"""Folder of the scripts, and working directory of the command."""

MAX_SCRIPT_BYTES: Final = 900 << 10
"""Maximum bytes of all scripts: an object holds 1 MiB, and this one has names, too."""

_MIN_ORDERED_MODELS: Final = 2
_SUFFIX_LETTERS: Final = string.ascii_lowercase + string.digits
_SUFFIX_LENGTH: Final = 5
_SHARE: Final = re.compile(r"(?P<percent>[^,:/]*?)%?[,:/](?P<memory>.*)")
_PERCENT: Final = re.compile(r"[1-9][0-9]?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_FILE: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of a new job.

    Attributes:
        command: program and arguments.
        name: name of the job; empty: made from the command.
        image: container image of the program.
        gpus: whole GPUs of each worker, or MIG slices.
        share: `25,10Gi`: percent and memory of a GPU instead; empty: whole GPUs.
        mig: profile of MIG slices; empty: none.
        workers: number of workers that start together.
        pod_per_worker: workers of one node share no pod.
        models: GPU models to choose from.
        model_fallback_seconds: pending time that permits one more of the models, the first of which
            is preferred; None: all are permitted from the start.
        min_memory: minimum memory of each GPU, such as 40Gi.
        priority_class: name of a PriorityClass.
        max_restarts: restarts after failures of the job itself.
        deadline_seconds: total active time of its attempts; None: without limit.
        ttl_seconds: time from its end until its deletion; None: it is kept.
        variables: environment, as NAME=VALUE.
        scripts: files in the command's working directory.
        non_root: the pods declare that their user is not root.
    """

    command: tuple[str, ...]
    name: str = ""
    image: str
    gpus: int = 1
    share: str = ""
    mig: str = ""
    workers: int = 1
    pod_per_worker: bool = False
    models: tuple[str, ...] = ()
    model_fallback_seconds: int | None = None
    min_memory: str = ""
    priority_class: str = ""
    max_restarts: int = 0
    deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    variables: tuple[str, ...] = ()
    scripts: tuple[Path, ...] = ()
    non_root: bool = False


def build_manifests(wanted: JobOptions, namespace: str) -> tuple[Json, Json | None]:
    """Return the GPUJob, and the ConfigMap that it needs.

    Raises:
        UsageInvalid: options without a valid meaning.
        InputInvalid: a script cannot be read, or all together are too large.
    """
    name = wanted.name or generate_name(wanted.command)
    scripts = _read(wanted.scripts)
    job: Json = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**_size(wanted), **_rules(wanted), "template": {"spec": _pod(wanted, name)}},
    }
    if not scripts:
        return job, None
    config: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": scripts,
    }
    return job, config


def as_yaml(documents: list[Json]) -> str:
    """Return YAML that users can edit: scripts line by line."""
    import yaml  # noqa: PLC0415 - only a dry run writes YAML

    class Dumper(yaml.SafeDumper):
        """A dumper that writes texts of several lines as blocks, and no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False)
    return written


def generate_name(command: tuple[str, ...]) -> str:
    """Return a name from the script or program, with random letters that make it unique."""
    words = [word for word in command if word.endswith((".py", ".sh"))] or list(command)
    stem = Path(words[0]).stem.lower()
    slug = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    slug = slug[: names.MAX_JOB_NAME - _SUFFIX_LENGTH - 1].strip("-")
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    begins_well = slug[:1].isalpha()
    return f"{slug if begins_well else f'job-{slug}'.rstrip('-')[:40]}-{suffix}"


def owner_patch(job: Json) -> Json:
    """Return the owner that removes the ConfigMap with its job."""
    metadata = job["metadata"]
    owner = owner_reference(metadata["name"], metadata["uid"])
    return {"metadata": {"ownerReferences": [owner]}}


def _size(wanted: JobOptions) -> Json:
    size: Json = {"workers": wanted.workers}
    if wanted.pod_per_worker:
        size["podPerWorker"] = True
    if wanted.share:
        return size | {"share": _share(wanted.share)}
    return size | {"gpus": wanted.gpus} | ({"mig": wanted.mig} if wanted.mig else {})


def _share(text: str) -> Json:
    # Other submissions need neither: they load Kubernetes' client and the schema's types.
    from gpupack_crds import quantity  # noqa: PLC0415
    from gpupack_crds.gpujob import MEMORY_PATTERN  # noqa: PLC0415

    parts = _SHARE.fullmatch(text)
    if parts is None:
        raise UsageInvalid(f"--share {text!r} is not a share; write percent and memory, as 25,10Gi")
    percent, memory = parts["percent"], parts["memory"]
    if not _PERCENT.fullmatch(percent):
        raise UsageInvalid(f"--share {text!r}: the percentage {percent!r} must be from 1 to 99")
    if not re.fullmatch(MEMORY_PATTERN, memory) or not 1 << 20 <= quantity.amount(memory) < 1 << 50:
        raise UsageInvalid(
            f"--share {text!r}: the memory {memory!r} must be at least 1Mi and less than 1Pi, "
            "such as 10Gi"
        )
    return {"percent": int(percent), "memory": memory}


def _rules(wanted: JobOptions) -> Json:
    given: Json = {
        "gpuModels": list(wanted.models),
        "gpuModelFallback": _fallback(wanted),
        "minMemory": wanted.min_memory,
        "priorityClassName": wanted.priority_class,
        "maxRestarts": wanted.max_restarts,
        "activeDeadlineSeconds": wanted.deadline_seconds,
        "ttlSecondsAfterFinished": wanted.ttl_seconds,
    }
    return {name: value for name, value in given.items() if value not in ([], "", None, 0)} | (
        {"ttlSecondsAfterFinished": 0} if wanted.ttl_seconds == 0 else {}
    )


def _fallback(wanted: JobOptions) -> Json | None:
    seconds, models = wanted.model_fallback_seconds, wanted.models
    if seconds is None:
        return None
    if len(models) < _MIN_ORDERED_MODELS or len(set(models)) < len(models):
        raise UsageInvalid(
            "--model-fallback needs two or more different --model options, the preferred one first"
        )
    return {"afterSeconds": seconds}


def _pod(wanted: JobOptions, name: str) -> Json:
    container: Json = {
        "name": names.WORKER_CONTAINER,
        "image": wanted.image,
        "command": list(wanted.command),
    }
    if wanted.variables:
        container["env"] = _environment(wanted.variables)
    pod: Json = {"containers": [container]}
    if wanted.non_root:
        pod["securityContext"] = {"runAsNonRoot": True}
    if wanted.scripts:
        container |= {"workingDir": FOLDER, "volumeMounts": _mounts(wanted.scripts)}
        pod["volumes"] = [
            {"name": "workspace", "emptyDir": {}},
            {"name": "scripts", "configMap": {"name": name, "defaultMode": 0o555}},
        ]
    return pod


def _mounts(scripts: tuple[Path, ...]) -> list[Json]:
    """Return a mount for each file, so that programs can write files next to them."""
    files = [
        {"name": "scripts", "mountPath": f"{FOLDER}/{path.name}", "subPath": path.name}
        for path in scripts
    ]
    return [{"name": "workspace", "mountPath": FOLDER}, *files]


def _environment(texts: tuple[str, ...]) -> list[Json]:
    variables: dict[str, Json] = {}
    for text in texts:
        variable = _variable(text)
        if variable["name"] in variables:
            raise UsageInvalid(f"--env gives {variable['name']} twice; give each name once")
        variables[variable["name"]] = variable
    return list(variables.values())


def _variable(text: str) -> Json:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise UsageInvalid(f"--env {text!r} is not a variable; write NAME=VALUE")
    return {"name": name, "value": value}


def _read(scripts: tuple[Path, ...]) -> Mapping[str, Any]:
    found: dict[str, str] = {}
    for path in scripts:
        if not _FILE.fullmatch(path.name) or path.name in found:
            raise UsageInvalid(
                f"--script {path}: each needs a unique name of letters, digits, . - and _"
            )
        try:
            with path.open("rb") as file:  # one byte more than allowed: no file fills the memory
                found[path.name] = file.read(MAX_SCRIPT_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InputInvalid(f"the script {path} cannot be read as text: {error}") from error
    size = sum(len(text.encode()) for text in found.values())
    if size > MAX_SCRIPT_BYTES:
        raise InputInvalid(
            f"the scripts have more than {MAX_SCRIPT_BYTES >> 10} KiB, the limit of a job; "
            "put them into the image, or on a volume"
        )
    return found
