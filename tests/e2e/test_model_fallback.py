# SPDX-License-Identifier: Apache-2.0
"""A job that prefers one GPU model waits for it, and then takes the next one.

The GPUs are simulated: for the time of the test one node has those of another model.
"""

import datetime as dt

import pytest
from harness import placed, wait_for
from manifests import gpujob
from simulated_layout import another_model

pytestmark = [pytest.mark.alone, pytest.mark.slow]

MODEL = "NVIDIA A100-SXM4-80GB"
SECONDS = 20
ORDER = {"gpuModels": ["H100", "A100"], "gpuModelFallback": {"afterSeconds": SECONDS}}
SLEEPS = {
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "worker",
                    "image": "docker.io/gpupack/workloads:dev",
                    "command": ["sleep", "600"],
                }
            ]
        }
    }
}


@pytest.fixture
def other(idle, cluster, system):
    """The last node, whose GPUs are of another model until the test ends."""
    *_, node = cluster.nodes()
    with another_model(system, node, MODEL):
        yield node


def message(kube, name):
    return kube.gpujob(name).get("status", {}).get("message", "")


def test_a_job_takes_the_next_model_when_it_has_waited_for_the_first(kube, other):
    """The other nodes are full. A model that no node has costs no time."""
    others = [node for node in kube.nodes() if node != other]
    kube.submit(gpujob("full", workers=len(others), gpus=8, gpuModels=["H100"], **SLEEPS))
    kube.wait_phase("full", "Running", seconds=120)
    kube.submit(gpujob("train", gpus=1, **ORDER, **SLEEPS))
    wait_for(
        lambda: "it may use H100 now, and A100 from " in message(kube, "train"),
        seconds=SECONDS,
        what="the message about the models",
    )
    job = kube.wait_phase("train", "Running", seconds=120)
    assert [place.node for place in placed(job)] == [other]
    created = dt.datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    started = dt.datetime.fromisoformat(job["status"]["attempts"][-1]["startedAt"])
    assert (started - created).total_seconds() >= SECONDS
    skips = {"gpuModels": ["H300", "A100"], "gpuModelFallback": {"afterSeconds": 3600}}
    kube.submit(gpujob("skips", gpus=1, **skips, **SLEEPS))
    job = kube.wait_phase("skips", "Running", seconds=60)
    assert [place.node for place in placed(job)] == [other]
