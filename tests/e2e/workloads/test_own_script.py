# SPDX-License-Identifier: Apache-2.0
"""The example of a user's own script: all of its processes are one training, which goes on."""

import json

import pytest
import yaml
from harness import ROOT
from volumes import shared_folder
from workload_jobs import RUN_SECONDS, logs

NAME = "train-torchrun"
DOCUMENTS = list(yaml.safe_load_all((ROOT / "examples" / f"{NAME}.yaml").read_text()))


@pytest.fixture
def volume(kube):
    with shared_folder(kube, NAME) as folder:
        yield folder


def metrics(kube):
    """What each worker says of the training that it was part of."""
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
