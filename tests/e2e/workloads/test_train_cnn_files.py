# SPDX-License-Identifier: Apache-2.0
"""The example that trains on files of a claim, on files in MNIST's format."""

import json
import struct

import numpy as np
import pytest
import yaml
from harness import ROOT
from volumes import shared_folder
from workload_jobs import RUN_SECONDS, logs

NAME = "train-cnn-mnist"
JOB = yaml.safe_load((ROOT / "examples" / f"{NAME}.yaml").read_text())
CLAIM, _ = yaml.safe_load_all((ROOT / "examples/train-cnn-data.yaml").read_text())
COUNTS = {"train": 1000, "t10k": 300}


@pytest.fixture
def volume(kube):
    with shared_folder(kube, CLAIM["metadata"]["name"]) as folder:
        yield folder


def write_files(raw):
    """Ten patterns of 7 x 7 squares under noise, one for each class."""
    chance = np.random.default_rng(1)
    patterns = chance.integers(0, 200, (10, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    raw.mkdir(parents=True)
    for part, count in COUNTS.items():
        labels = np.arange(count) % 10
        pixels = patterns[labels] + chance.integers(0, 50, (count, 28, 28))
        for name, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
            (raw / f"{part}-{name}-ubyte").write_bytes(head + values.astype(np.uint8).tobytes())


def ended(kube):
    return kube.wait_phase(NAME, "Succeeded", "Failed", seconds=RUN_SECONDS)["status"]


def test_a_training_reads_files_of_a_claim_and_names_a_missing_one(kube, volume):
    # The claim of the test's own volume, which is one for many nodes.
    kube.submit(CLAIM | {"spec": CLAIM["spec"] | {"accessModes": ["ReadWriteMany"]}})
    kube.submit(JOB)
    status = ended(kube)
    assert status["phase"] == "Failed"
    assert "/data/MNIST/raw has no train-images-idx3-ubyte" in json.dumps(status)

    kube.insist("delete", "gpujob", NAME)
    write_files(volume / "MNIST/raw")
    kube.submit(JOB)
    status = ended(kube)
    assert status["phase"] == "Succeeded", [json.dumps(status), *logs(kube, NAME)]
    (result,) = status["results"]
    assert (result["verified"], result["metrics"]["test_images"]) == (True, 300)
