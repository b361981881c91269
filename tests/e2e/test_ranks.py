# SPDX-License-Identifier: Apache-2.0
"""What a plain Python script finds out about its rank, by its worker's environment alone."""

import json
import textwrap

import pytest
from manifests import JUDGE_IMAGE, gpujob, on_node

RUN_SECONDS = 120

SCRIPT = textwrap.dedent(
    """
    import json
    import os
    import socket
    import time

    def by_rank():  # nanoGPT
        return int(os.environ["LOCAL_RANK"]) if "RANK" in os.environ else "alone"

    def by_rank_and_world():  # init_distributed_mode
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return int(os.environ["LOCAL_RANK"])
        return "alone"

    def by_local_rank():  # Accelerate, the Trainer of transformers
        return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else "alone"

    def meet(rank, world):
        port = int(os.environ["MASTER_PORT"])
        if rank == 0:
            with socket.create_server(("", port)) as server:
                return sorted(int(server.accept()[0].recv(8)) for _ in range(world - 1))
        while True:
            try:
                with socket.create_connection((os.environ["MASTER_ADDR"], port)) as peer:
                    peer.sendall(str(rank).encode())
                return []
            except OSError:
                time.sleep(0.2)

    found = [by_rank(), by_rank_and_world(), by_local_rank()]
    if found == ["alone"] * 3:
        print(json.dumps({"local": found}))
    else:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        print(json.dumps({"local": found, "rank": rank, "of": world, "met": meet(rank, world)}))
    """
)


def of(workers, **spec):
    container = {"name": "worker", "image": JUDGE_IMAGE, "command": ["python3", "-c", SCRIPT]}
    template = {"spec": {"containers": [container]}}
    return gpujob("ranks", workers=workers, template=template, **spec)


def printed(kube):
    """Return what each worker printed, in the order of their indices."""
    pods = sorted(kube.pods("ranks"), key=lambda pod: pod["metadata"]["name"])
    workers = [
        (pod["metadata"]["name"], container["name"])
        for pod in pods
        for container in pod["spec"]["containers"]
    ]
    return [
        json.loads(kube.insist("logs", pod, "--container", container)) for pod, container in workers
    ]


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_script_in_a_job_of_one_worker_is_not_distributed(kube, gpus):
    kube.submit(of(1, gpus=gpus))
    kube.wait_phase("ranks", "Succeeded", seconds=RUN_SECONDS)
    assert printed(kube) == [{"local": ["alone"] * 3}]


@pytest.mark.parametrize("separate", [True, False], ids=["separate pods", "one pod"])
def test_scripts_of_two_workers_connect_as_two_ranks(kube, separate):
    kube.submit(on_node(of(2, podPerWorker=separate), "gpupack-1"))
    kube.wait_phase("ranks", "Succeeded", seconds=RUN_SECONDS)
    local = [0, 0, 0]
    assert printed(kube) == [
        {"local": local, "rank": 0, "of": 2, "met": [1]},
        {"local": local, "rank": 1, "of": 2, "met": []},
    ]
