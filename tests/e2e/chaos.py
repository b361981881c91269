# SPDX-License-Identifier: Apache-2.0
"""Kill parts with -9 at random moments while something else goes on."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator

from gpupack_devcluster.driver import ClusterDriver, NodeComponent

PROCESSES = {
    "operator": "gpupack_operator",
    "extender": "gpupack_extender",
    "kube-scheduler": "kube-scheduler.*gpupack",
    "agent": "gpupack_agent",
}
"""Parts that run in pods, and what their command lines match."""

KUBELET = "kubelet"
PARTS = (*PROCESSES, KUBELET)


def kill_process(cluster: ClusterDriver, pattern: str) -> int:
    """Kill the processes of one part on every node; the kubelet starts their containers again."""
    found = 0
    for node in cluster.nodes():
        found += cluster.execute(node, ["pkill", "-9", "-f", pattern]).returncode == 0
    return found


def kill_kubelet(cluster: ClusterDriver, node: str) -> None:
    """Kill a node's kubelet and start it again, as systemd would."""
    cluster.kill(node, NodeComponent.KUBELET)
    cluster.start(node, NodeComponent.KUBELET)


def kill_part(cluster: ClusterDriver, part: str, chance: random.Random) -> None:
    """Kill one part, wherever it runs."""
    if part == KUBELET:
        kill_kubelet(cluster, chance.choice(cluster.nodes()))
    else:
        kill_process(cluster, PROCESSES[part])


@contextlib.contextmanager
def killing(
    cluster: ClusterDriver, *, seed: int, every_seconds: tuple[float, float]
) -> Iterator[Callable[[], list[str]]]:
    """Kill all parts in random order again and again; yields a look at what was killed."""
    chance = random.Random(seed)
    killed: list[str] = []
    stop = threading.Event()

    def rampage() -> None:
        order: list[str] = []
        while not stop.wait(chance.uniform(*every_seconds)):
            order = order or chance.sample(PARTS, len(PARTS))
            part = order.pop()
            kill_part(cluster, part, chance)
            killed.append(part)

    thread = threading.Thread(target=rampage)
    thread.start()
    try:
        yield lambda: list(killed)
    finally:
        stop.set()
        thread.join()
