# SPDX-License-Identifier: Apache-2.0
"""How the workers of a gang reach one another."""

import pytest
from manifests import gpujob
from workload_jobs import RUN_SECONDS, logs

ON_TWO_NODES = {"oneWorkerPerNode": True}


@pytest.mark.slow
@pytest.mark.parametrize("of_node", [False, True], ids=["pods' network", "nodes' network"])
def test_a_gang_meets_and_says_how_it_communicates(kube, of_node):
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
