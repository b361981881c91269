# SPDX-License-Identifier: Apache-2.0
"""Stop processes with SIGSTOP and let them go on: they keep all they know and notice nothing."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from harness import STATE

from gpupack_devcluster import processes
from gpupack_devcluster.driver import ClusterDriver, HostComponent

FIND = 'for pid in $(pgrep -f "$1"); do grep -q "$2" /proc/$pid/cgroup && echo "$pid"; done; true'


@contextlib.contextmanager
def host_daemon_paused(component: HostComponent) -> Iterator[None]:
    """Pause a daemon of the control plane; the pidfd cannot hit another cluster's."""
    daemon = processes.find(STATE, component)
    assert daemon is not None, f"{component} does not run"
    handle = os.pidfd_open(daemon.pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        yield
    finally:
        signal.pidfd_send_signal(handle, signal.SIGCONT)
        os.close(handle)


@contextlib.contextmanager
def pod_paused(cluster: ClusterDriver, pod: dict[str, Any], *patterns: str) -> Iterator[None]:
    """Pause those processes of a pod whose command lines match."""
    node, pids = pod["spec"]["nodeName"], pids_of(cluster, pod, *patterns)
    assert len(pids) >= len(patterns), f"of {patterns} only {pids} run"
    try:
        _signal(cluster, node, "STOP", pids)
        yield
    finally:
        _signal(cluster, node, "CONT", pids)


def kill_in_pod(cluster: ClusterDriver, pod: dict[str, Any], *patterns: str) -> None:
    """Kill -9 those processes of a pod whose command lines match."""
    _signal(cluster, pod["spec"]["nodeName"], "KILL", pids_of(cluster, pod, *patterns))


def pids_of(cluster: ClusterDriver, pod: dict[str, Any], *patterns: str) -> list[str]:
    """Identifiers, on the pod's node, of its processes whose command lines match."""
    node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    found = [
        cluster.execute(node, ["sh", "-c", FIND, "sh", pattern, uid]).stdout.split()
        for pattern in patterns
    ]
    return [pid for pids in found for pid in pids]


def _signal(cluster: ClusterDriver, node: str, name: str, pids: list[str]) -> None:
    """Send a signal to the processes; one that has ended is not an error."""
    cluster.execute(node, ["sh", "-c", 'kill -s "$@" 2>/dev/null; true', "sh", name, *pids])
