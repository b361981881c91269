# SPDX-License-Identifier: Apache-2.0
"""How the workers of a gang reach one another."""

import json

import pytest
from manifests import JUDGE_IMAGE, gpujob
from workload_jobs import RUN_SECONDS, logs

ON_TWO_NODES = {"oneWorkerPerNode": True}
BY_MEMORY = {
    "schema": "gpupack.dev/result/v1",
    "communication": {"transport": "SHM", "bus_gb_per_s": 27.5},
}
SAYS_SO = (
    f"import os; open(os.environ['GPUPACK_RESULT_PATH'], 'w').write({json.dumps(BY_MEMORY)!r})"
)


@pytest.mark.slow
@pytest.mark.parametrize("of_node", [False, True], ids=["pods' network", "nodes' network"])
def test_a_gang_connects_and_reports_its_communication(kube, of_node):
    workload = {"name": "allreduce", "args": ["--size=65536"]}
    size = {"workers": 2, "gpus": 1, "spread": ON_TWO_NODES}
    size |= {"template": {"spec": {"hostNetwork": True}}} if of_node else {}
    kube.submit(gpujob("gang", workload=workload, **size))
    job = kube.wait_phase("gang", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", logs(kube, "gang")
    found = [result["communication"] for result in job["status"]["results"]]
    assert [each["transport"] for each in found] == ["tcp", "tcp"]
    assert min(each["bus_gb_per_s"] for each in found) > 0


@pytest.mark.slow
def test_ranks_that_share_a_pod_pass_data_through_memory(kube):
    """Open MPI has no other way here: without its TCP a rank that cannot use memory fails."""
    container = {"name": "worker", "env": [{"name": "OMPI_MCA_btl", "value": "self,sm"}]}
    kube.submit(
        gpujob(
            "ranks",
            workers=2,
            gpus=1,
            podPerWorker=False,
            spread={"maxNodes": 1},
            distributed={"backend": "mpi"},
            workload={"name": "mpi", "args": ["--size=65536"]},
            template={"spec": {"containers": [container]}},
        )
    )
    job = kube.wait_phase("ranks", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [job["status"]["message"], *logs(kube, "ranks")]
    assert len(kube.pods("ranks")) == 1
    assert job["status"]["results"][0]["metrics"]["ranks"] == 2


def test_a_gang_that_leaves_nvlink_unused_is_reported(kube):
    container = {"name": "worker", "image": JUDGE_IMAGE, "command": ["python3", "-c", SAYS_SO]}
    kube.submit(
        gpujob(
            "slow",
            workers=2,
            gpus=1,
            podPerWorker=True,
            spread={"oneClique": True},
            template={"spec": {"containers": [container]}},
        )
    )
    status = kube.wait_phase("slow", "Succeeded", "Failed", seconds=RUN_SECONDS)["status"]
    assert status["phase"] == "Succeeded", status["message"]
    (fast,) = (each for each in status["conditions"] if each["type"] == "FastCommunication")
    assert (fast["status"], fast["reason"]) == ("False", "NVLinkNotUsed")
    assert "use SHM at 27.5 GB/s; a pod for each worker keeps NVLink from them" in fast["message"]
    assert fast["message"] in status["message"]
