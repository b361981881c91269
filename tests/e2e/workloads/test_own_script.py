# SPDX-License-Identifier: Apache-2.0
"""The example of a user's own script: all of its processes are one training, which goes on."""

import json
import shutil

import pytest
import yaml
from harness import ROOT, STATE
from workload_jobs import RUN_SECONDS, logs

NAME = "train-torchrun"
DOCUMENTS = list(yaml.safe_load_all((ROOT / "examples" / f"{NAME}.yaml").read_text()))


@pytest.fixture
def volume(kube):
    """What a class of storage would provide: a folder that all nodes of this host reach."""
    folder = STATE / "volumes" / kube.namespace
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    claim = {"namespace": kube.namespace, "name": NAME}
    kube.submit(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{kube.namespace}-{NAME}"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"},
                "claimRef": claim,
                "hostPath": {"path": str(folder.resolve())},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
    )
    yield folder
    kube.kubectl("delete", "pv", f"{kube.namespace}-{NAME}", "--wait=false")
    shutil.rmtree(folder)


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
