# SPDX-License-Identifier: Apache-2.0
"""Kill parts with -9 at random moments while something else goes on.

What runs in pods is started again by the kubelet. The cluster's own daemons have nobody: whoever
kills one here starts it again at once, as systemd would.
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
"""Parts that run in pods, and what their command lines match."""

KUBELET = "kubelet"
PARTS = (*PROCESSES, KUBELET)
"""Our parts, and what starts containers."""

NODE_DAEMONS = {KUBELET: NodeComponent.KUBELET, "containerd": NodeComponent.CONTAINERD}
HOST_DAEMONS = {
    "etcd": HostComponent.ETCD,
    "kube-apiserver": HostComponent.API_SERVER,
    "kube-controller-manager": HostComponent.CONTROLLER_MANAGER,
}
EVERY_PART = (*PROCESSES, *NODE_DAEMONS, *HOST_DAEMONS)
"""Everything that has a say in where a pod runs and on what."""

POWER = "power"
"""Of one node, for a while: the whole node is off, and boots again."""
OFF_SECONDS = (2.0, 20.0)


def kill_process(cluster: ClusterDriver, pattern: str) -> int:
    """Kill the processes of one part on every node; the kubelet starts their containers again."""
    found = 0
    for node in cluster.nodes():
        found += cluster.execute(node, ["pkill", "-9", "-f", pattern]).returncode == 0
    return found


def restart(cluster: ClusterDriver, target: str, component: str) -> None:
    """Kill a daemon of a node or of the host and start it again, as systemd would."""
    cluster.kill(target, component)
    cluster.start(target, component)


def kill_kubelet(cluster: ClusterDriver, node: str) -> None:
    """Kill a node's kubelet and start it again."""
    restart(cluster, node, NodeComponent.KUBELET)


def kill_part(cluster: ClusterDriver, part: str, chance: random.Random) -> None:
    """Kill one part, wherever it runs; of a daemon that every node has, one.

    Raises:
        NotThere: there was nothing to kill.
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
    """Cut a node's power for so long; returns when it is Ready again."""
    cluster.power_off(node)
    try:
        time.sleep(seconds)
    finally:
        cluster.power_on(node)


class NotThere(Exception):
    """What was to be killed does not run (yet, again)."""


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
    """Kill all parts in random order again and again; yields a look at what was killed.

    A part that does not run when its turn comes is killed later, so that each round has killed
    each. Nothing is killed but `when` it may be: a slow machine is not killed faster than it gets
    up. After so many `rounds` nothing is killed any more. Daemons that end by themselves are
    started again until the end of the block: kube-controller-manager does, when it starts while
    the API server does.
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
    """Start the daemons that ended by themselves, as systemd would."""
    for component in HOST_DAEMONS.values():
        cluster.start(HOST, component)
    for node in cluster.nodes():
        for component in NODE_DAEMONS.values():
            cluster.start(node, component)
