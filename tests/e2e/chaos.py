# SPDX-License-Identifier: Apache-2.0
"""Kills components with SIGKILL at random moments while something else runs.

The kubelet restarts what runs in pods. Nothing restarts the cluster's own daemons, so the code that
kills one restarts it at once, as systemd would.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence

from background import running

from gpupack_devcluster.driver import ClusterDriver, HostComponent, NodeComponent
from gpupack_devcluster.settings import HOST

PROCESSES = {
    "operator": "gpupack_operator",
    "extender": "gpupack_extender",
    "kube-scheduler": "kube-scheduler.*gpupack",
    "agent": "gpupack_agent",
}
"""Components that run in pods, and the pattern of their command lines."""

KUBELET = "kubelet"
PARTS = (*PROCESSES, KUBELET)
"""gpupack's components, and what starts containers."""

NODE_DAEMONS = {KUBELET: NodeComponent.KUBELET, "containerd": NodeComponent.CONTAINERD}
HOST_DAEMONS = {
    "etcd": HostComponent.ETCD,
    "kube-apiserver": HostComponent.API_SERVER,
    "kube-controller-manager": HostComponent.CONTROLLER_MANAGER,
}
EVERY_PART = (*PROCESSES, *NODE_DAEMONS, *HOST_DAEMONS)
"""Every component that decides where a pod runs and on which GPUs."""

POWER = "power"
"""Faults that last for a while: the whole node is off, and boots again."""
OFF_SECONDS = (2.0, 20.0)


def kill_process(cluster: ClusterDriver, pattern: str) -> int:
    """Kill the processes of one component on every node; the kubelet restarts their containers."""
    found = 0
    for node in cluster.nodes():
        found += cluster.execute(node, ["pkill", "-9", "-f", pattern]).returncode == 0
    return found


def restart(cluster: ClusterDriver, target: str, component: str) -> None:
    """Kill a daemon of a node or of the host and restart it, as systemd would."""
    cluster.kill(target, component)
    cluster.start(target, component)


def kill_kubelet(cluster: ClusterDriver, node: str) -> None:
    """Kill a node's kubelet and restart it."""
    restart(cluster, node, NodeComponent.KUBELET)


def kill_part(cluster: ClusterDriver, part: str, chance: random.Random) -> None:
    """Kill one component wherever it runs; for a daemon that every node has, kill one.

    Raises:
        NotThere: nothing to kill was found.
    """
    if part in NODE_DAEMONS:
        restart(cluster, chance.choice(cluster.nodes()), NODE_DAEMONS[part])
    elif part in HOST_DAEMONS:
        restart(cluster, HOST, HOST_DAEMONS[part])
    elif part == POWER:
        lose_power(cluster, chance.choice(cluster.nodes()), chance.uniform(*OFF_SECONDS))
    elif not kill_process(cluster, PROCESSES[part]):
        raise NotThere(f"no process of {part} to kill")


def lose_power(cluster: ClusterDriver, node: str, seconds: float) -> None:
    """Cut a node's power for so long; return when it is Ready again."""
    cluster.power_off(node)
    try:
        time.sleep(seconds)
    finally:
        cluster.power_on(node)


class NotThere(Exception):
    """The process to kill does not run at the moment."""


@contextlib.contextmanager
def killing(
    cluster: ClusterDriver,
    *,
    seed: int,
    every_seconds: tuple[float, float],
    parts: Sequence[str] = PARTS,
    rounds: int | None = None,
    when: Callable[[], bool] = lambda: True,
) -> Iterator[Callable[[], list[str]]]:
    """Kill all components in random order, repeatedly; yield a function that lists the kills.

    A component that does not run at its turn is killed later, so that each round kills each of
    them. Kills happen only while `when` allows them, so that a slow machine has time to recover.
    After so many `rounds` the kills stop. Daemons that end by themselves are restarted until the
    end of the block: kube-controller-manager ends if it starts while the API server starts.
    """
    chance = random.Random(seed)
    killed: list[str] = []
    order: list[str] = []
    most = None if rounds is None else rounds * len(parts)

    def kill_next() -> None:
        tend(cluster)
        if len(killed) == most or not when():
            return
        if not order:
            order.extend(chance.sample(parts, len(parts)))
        part = order.pop()
        try:
            kill_part(cluster, part, chance)
        except NotThere:
            order.insert(0, part)
        else:
            killed.append(part)

    with running(kill_next, lambda: chance.uniform(*every_seconds)):
        yield lambda: list(killed)


def tend(cluster: ClusterDriver) -> None:
    """Restart the daemons that ended by themselves, as systemd would."""
    for component in HOST_DAEMONS.values():
        cluster.start(HOST, component)
    for node in cluster.nodes():
        for component in NODE_DAEMONS.values():
            cluster.start(node, component)
