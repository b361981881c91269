# SPDX-License-Identifier: Apache-2.0
"""The interface of a test cluster: what tests may ask of any of them.

`Cluster` (cluster.py) is our own; `KindCluster` (kind.py) is plain kind. A `target` is a node's
name or HOST, where the control plane runs.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol


class NodeComponent(StrEnum):
    """Daemons of a node."""

    KUBELET = "kubelet"
    CONTAINERD = "containerd"
    KUBE_PROXY = "kube-proxy"


class HostComponent(StrEnum):
    """Daemons of the control plane."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    COREDNS = "coredns"
    KWOK = "kwok"


class ClusterDriver(Protocol):
    """A cluster that can be started, filled with images, broken and repaired."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    def nodes(self) -> tuple[str, ...]:
        """Return names of the real nodes that pods run on, whether on or off."""

    def up(self, *, nodes: int, kwok_nodes: int) -> None:
        """Start what is not running; return when all nodes are Ready."""

    def down(self) -> None:
        """Stop everything and leave only files below the state folder."""

    def reset(self) -> None:
        """Stop everything, and delete the cluster's contents."""

    def load(self, images: Sequence[str]) -> None:
        """Load images (a name in the local store, or an archive file) into every node."""

    def power_off(self, node: str) -> None:
        """Cut the power: every process of the node ends at once."""

    def power_on(self, node: str) -> None:
        """Boot a node that is off; return when it is Ready."""

    def kill(self, target: str, component: str) -> None:
        """Kill one daemon with `kill -9`."""

    def start(self, target: str, component: str) -> None:
        """Start a daemon that is not running."""

    def entry(self, node: str) -> list[str]:
        """Return a command line prefix that runs a command in a node."""

    def execute(self, node: str, command: Sequence[str]) -> CompletedProcess[str]:
        """Run a command in a node; capture its output and do not check its status."""

    def describe(self) -> list[str]:
        """Return what runs, for users, one line each; nothing if the cluster is down."""
