# SPDX-License-Identifier: Apache-2.0
"""Ranks that mpirun starts in two pods on two nodes, of a command of the user's own."""

import json

import pytest
from harness import placed, wait_for
from manifests import gpujob
from workload_jobs import RUN_SECONDS, logs

IMAGE = "docker.io/gpupack/workloads:dev"

RANKS = """
import json, os, sys, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
places = comm.gather((comm.rank, os.environ["HOSTNAME"], os.environ["GPUPACK_WORKER_INDEX"]))
if comm.rank == 0:
    print(json.dumps(places), flush=True)
exec(os.environ["THEN"])
"""


@pytest.fixture
def ranks(kube):
    """Submits a job of two workers on two nodes, two ranks in each; they end by doing `then`."""

    def submit(name, then="pass", **spec):
        container = {
            "name": "train",
            "image": IMAGE,
            "command": ["python", "-c", RANKS],
            "env": [{"name": "THEN", "value": then}],
        }
        distributed = {"backend": "mpi", "processesPerWorker": 2}
        spec = {
            "workers": 2,
            "gpus": 1,
            "spread": {"oneWorkerPerNode": True},
            "distributed": distributed,
            "template": {"spec": {"containers": [container]}},
        } | spec
        kube.submit(gpujob(name, **spec))

    return submit


def keys(kube):
    """The Secrets with keys of this namespace, by their owners."""
    found = json.loads(
        kube.insist("get", "secrets", "--field-selector=type=gpupack.dev/mpi", "-ojson")
    )
    return {
        item["metadata"]["name"]: item["metadata"]["ownerReferences"][0]["name"]
        for item in found["items"]
    }


def test_four_ranks_of_two_nodes_are_one_world_with_a_key_of_their_own(kube, ranks):
    ranks("world")
    job = kube.wait_phase("world", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [json.dumps(job["status"]), *logs(kube, "world")]
    assert len({worker.node for worker in placed(job)}) == 2
    (first,) = (
        p["metadata"]["name"] for p in kube.pods("world") if "-1-0-" in p["metadata"]["name"]
    )
    log = kube.insist("logs", first, "-c", "train")
    (line,) = (line for line in log.splitlines() if line.startswith("[["))
    assert json.loads(line) == [
        [0, "world-1-0", "0"],
        [1, "world-1-0", "0"],
        [2, "world-1-1", "1"],
        [3, "world-1-1", "1"],
    ]
    assert list(keys(kube).values()) == ["world"]
    kube.insist("delete", "gpujob", "world")
    wait_for(lambda: not keys(kube), seconds=60, what="the key goes with its job")


def test_a_rank_that_dies_ends_the_job_with_its_rank_its_pod_its_node_and_its_signal(kube, ranks):
    ranks("dies", "os.kill(os.getpid(), 9) if comm.rank == 3 else time.sleep(120)")
    job = kube.wait_phase("dies", "Succeeded", "Failed", seconds=RUN_SECONDS)
    (attempt,) = job["status"]["attempts"]
    node = attempt["fault"]["node"]
    assert (attempt["outcome"], attempt["fault"]["worker"]) == ("Failed", 1), logs(kube, "dies")
    assert node == next(each.node for each in placed(job) if each.worker == 1)
    assert attempt["message"].startswith(
        f"worker 1 on node {node}: container train ended with exit code 137"
    )
    assert "rank 3 of 4 in pod dies-1-1 was ended by signal 9 (killed)" in attempt["message"]


def test_each_attempt_has_another_key_and_the_next_one_runs(kube, ranks):
    ranks(
        "again",
        "sys.exit(9 * (os.environ['GPUPACK_ATTEMPT'] == '1' and comm.rank == 2))",
        maxRestarts=1,
    )
    job = kube.wait_phase("again", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [json.dumps(job["status"]), *logs(kube, "again")]
    first, second = job["status"]["attempts"]
    assert "rank 2 of 4 in pod again-1-1 ended with exit code 9" in first["message"]
    assert second["outcome"] == "Succeeded"
    uid = job["metadata"]["uid"]
    assert f"gpupack-mpi-{uid}-2" in keys(kube)
