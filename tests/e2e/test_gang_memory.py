# SPDX-License-Identifier: Apache-2.0
"""Workers of a gang with a pod each have one /dev/shm on a node, and no other pod has it."""

import json
import textwrap

from harness import wait_for
from manifests import JUDGE_IMAGE, gpujob, on_node

RUN_SECONDS = 180
BOTH = ["worker-0", "worker-1"]

SCRIPT = textwrap.dedent(
    """
    import json
    import os
    import pathlib
    import time

    memory = pathlib.Path("/dev/shm")
    own = memory / f"worker-{os.environ['GPUPACK_WORKER_INDEX']}"
    own.write_text(os.environ["GPUPACK_NAMESPACE"])
    end = time.monotonic() + 120
    while len(list(memory.glob("worker-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.2)
    while not (memory / "leave").exists() and time.monotonic() < end:
        time.sleep(0.2)
    found = {path.name: path.read_text() for path in memory.glob("worker-*")}
    print(json.dumps({"host": os.environ.get("NCCL_HOSTID", ""), "found": found}))
    """
)


def gang(node):
    container = {"name": "worker", "image": JUDGE_IMAGE, "command": ["python3", "-c", SCRIPT]}
    template = {"spec": {"containers": [container]}}
    return on_node(gpujob("gang", workers=2, podPerWorker=True, template=template), node)


def ends(kube):
    """Let the workers end; returns what each printed."""
    names = sorted(pod["metadata"]["name"] for pod in kube.pods("gang"))
    kube.insist("exec", names[0], "--", "touch", "/dev/shm/leave")
    kube.wait_phase("gang", "Succeeded", seconds=RUN_SECONDS)
    return [json.loads(kube.insist("logs", name)) for name in names]


def listed(kube):
    """Return what the workers have written into the memory of the first, while they run."""
    pod = kube.pods("gang")[0]["metadata"]["name"]
    return kube.kubectl("exec", pod, "--", "ls", "/dev/shm").stdout.split()


def test_pods_of_a_gang_have_one_memory_and_gangs_of_other_namespaces_another(kube, others):
    other = others("other")
    node = kube.nodes()[0]
    for each in (kube, other):
        each.submit(gang(node))
    for each in (kube, other):
        each.wait_phase("gang", "Running", seconds=RUN_SECONDS)
        wait_for(
            lambda kube=each: sorted(listed(kube)) == BOTH,
            seconds=RUN_SECONDS,
            what="both workers have written",
        )
    for each in (kube, other):
        first, second = ends(each)
        assert (
            first["found"]
            == second["found"]
            == {
                "worker-0": each.namespace,
                "worker-1": each.namespace,
            }
        )
        assert first["host"] == second["host"]
        assert first["host"].startswith(f"{node}/")
