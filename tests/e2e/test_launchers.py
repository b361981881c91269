# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/launchers: every launcher makes one training of all workers.

A launcher's packages are in no image of ours: `.ci/launchers` installs them into a folder (`make
launchers`), which the pods mount. LAUNCHERS_REPORT=FILE keeps what the processes found, for the
table of docs/your-own-image.md.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil

import pytest
import yaml
from fixtures import namespace
from harness import ROOT, STATE, StillWaiting
from volumes import shared_folder

PACKAGES = pathlib.Path(os.environ.get("LAUNCHERS", STATE / "launchers"))
REPORT = os.environ.get("LAUNCHERS_REPORT")
CLAIM = "packages"
RUN_SECONDS = 420
"""All of them start at once on a machine of two cores."""

FOUND = re.compile(
    r"rank (\d+) of (\d+), local rank (\d+), on ([a-z]+)(?::\d+)?, weights (-?[\d.]+)"
)
SCRIPT = "/scripts/train.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PACKAGES.is_dir(), reason="run `make launchers` first"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """An example in one shape; with a command, started otherwise."""

    example: str
    workers: int
    gpus: int
    command: tuple[str, ...] = ()

    @property
    def name(self):
        how = f"-by-{self.command[0]}" if self.command else ""
        return f"{self.example}-{self.workers}-{self.gpus}{how}"

    def manifests(self):
        """The example, with the packages mounted into its workers."""
        text = (ROOT / "examples" / "launchers" / f"{self.example}.yaml").read_text()
        job, scripts = yaml.safe_load_all(text)
        job["metadata"]["name"] = scripts["metadata"]["name"] = self.name
        job["spec"] |= {"workers": self.workers, "gpus": self.gpus}
        pod = job["spec"]["template"]["spec"]
        (volume,), (worker,) = pod["volumes"], pod["containers"]
        volume["configMap"]["name"] = self.name
        pod["volumes"].append({"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}})
        worker["volumeMounts"].append({"name": CLAIM, "mountPath": "/packages"})
        path = "/packages/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
        worker["env"] = [
            {"name": "PYTHONPATH", "value": "/packages"},
            {"name": "PATH", "value": path},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ]
        if self.command:
            worker["command"] = [*self.command, SCRIPT]
        return job, scripts


CASES = [
    Case("python", 1, 1),
    Case("python", 2, 1),
    Case("torchrun", 2, 2),
    Case("torch-distributed-launch", 2, 2),
    Case("accelerate", 2, 2),
    Case("accelerate", 2, 1, ("accelerate", "launch")),
    Case("deepspeed", 2, 2),
    Case("lightning", 2, 1),
    Case("lightning", 2, 2),
    Case("transformers", 1, 1),
    Case("transformers", 2, 1),
]


@pytest.fixture(scope="module")
def launched(cluster):
    """A namespace in which all of them were started."""
    with namespace(cluster, "launchers") as kube, shared_folder(kube, CLAIM) as folder:
        shutil.copytree(PACKAGES, folder, dirs_exist_ok=True)
        claim = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        kube.submit(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": CLAIM},
                "spec": claim,
            },
            *(each for case in CASES for each in case.manifests()),
        )
        yield kube


@pytest.fixture(scope="module")
def report():
    """Return the findings by case; they are written at the end if a file is named."""
    found = {}
    yield found
    if REPORT:
        pathlib.Path(REPORT).write_text(json.dumps(found, indent=1) + "\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_launcher_starts_one_training_over_all_workers(launched, report, case):
    logs = finished(launched, case.name)
    processes = [
        (worker, *found)
        for worker, log in enumerate(logs)
        for found in sorted(FOUND.findall(log), key=lambda each: int(each[0]))
    ]
    command = case.manifests()[0]["spec"]["template"]["spec"]["containers"][0]["command"]
    report[case.name] = {
        "example": case.example,
        "workers": case.workers,
        "gpus": case.gpus,
        "command": command,
        "processes": processes,
    }
    each_has, count = case.gpus, case.workers * case.gpus
    expected = [
        (rank // each_has, str(rank), str(count), str(rank % each_has)) for rank in range(count)
    ]
    assert [each[:4] for each in processes] == expected, logs
    assert len({weights for *_, weights in processes}) == 1, processes


def finished(kube, name):
    """The workers' logs of a job that succeeded."""
    try:
        job = kube.wait_phase(name, "Succeeded", "Failed", seconds=RUN_SECONDS)
    except StillWaiting as error:
        raise StillWaiting(f"{error}; {logs_of(kube, name)}") from error
    assert job["status"]["phase"] == "Succeeded", (job["status"], logs_of(kube, name))
    return logs_of(kube, name)


def logs_of(kube, name):
    pods = sorted(kube.pods(name), key=lambda pod: pod["metadata"]["name"])
    return [kube.kubectl("logs", pod["metadata"]["name"], "--tail=60").stdout for pod in pods]
