# SPDX-License-Identifier: Apache-2.0
"""The example of a user's own script: all of its processes are one training, which goes on."""

import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml
from harness import ROOT, kubectl_binary
from volumes import shared_folder
from workload_jobs import RUN_SECONDS, logs

NAME = "train-torchrun"
DOCUMENTS = list(yaml.safe_load_all((ROOT / "examples" / f"{NAME}.yaml").read_text()))


@pytest.fixture
def volume(kube):
    with shared_folder(kube, NAME) as folder:
        yield folder


def metrics(kube):
    """Return each worker's metrics of the training."""
    job = kube.wait_phase(NAME, "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [json.dumps(job["status"]), *logs(kube, NAME)]
    assert all(result["verified"] for result in job["status"]["results"])
    return [result["metrics"] for result in job["status"]["results"]]


def test_four_processes_of_two_workers_are_one_training_that_a_second_job_continues(kube, volume):
    for document in DOCUMENTS:
        kube.submit(document)
    begun = metrics(kube)
    assert [found["processes"] for found in begun] == [4, 4]
    assert [found["first_step"] for found in begun] == [0, 0]
    assert len({found["largest_error"] for found in begun}) == 1
    assert [path.name for path in volume.glob("*/*")] == ["checkpoint.pt"]

    kube.insist("delete", "gpujob", NAME)
    kube.submit(DOCUMENTS[0])
    assert [found["first_step"] for found in metrics(kube)] == [200, 200]
    assert sorted(path.name for path in volume.iterdir()) == ["start-1", "start-2"]


PAGE = (ROOT / "docs/workloads/own-job.md").read_text()


def block(language, number=0):
    """A block of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[number]


@pytest.fixture
def shell(kube, tmp_path):
    """Run commands as a user that copies them, in the test's namespace."""
    config = yaml.safe_load(kube.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = kube.namespace
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    added = {
        "KUBECONFIG": str(tmp_path / "config"),
        "PATH": f"{pathlib.Path(kubectl_binary()).parent}:{os.environ['PATH']}",
    }

    def run(commands):
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{commands}"],
            cwd=tmp_path, env=os.environ | added, capture_output=True, text=True, timeout=500,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_page_leads_from_a_copy_to_another_script_data_and_size(kube, shell, tmp_path):
    (tmp_path / "train.py").write_text(block("python"))
    (tmp_path / "mine.yaml").write_text(block("yaml"))
    assert "slope 2.000, 2 processes" in shell(block("sh"))
    changed = block("python").replace('"workload": "mine"', '"workload": "changed"')
    (tmp_path / "train.py").write_text(changed)
    shell(block("sh", 1))
    results = kube.wait_phase("mine", "Succeeded", seconds=5)["status"]["results"]
    assert [each["metrics"]["processes"] for each in results] == [3, 3, 3]
    assert {each["workload"] for each in results} == {"changed"}
