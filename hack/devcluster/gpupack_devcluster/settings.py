# SPDX-License-Identifier: Apache-2.0
"""Paths and addresses of the cluster."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

HOST = "host"
SANDBOX_IMAGE = "localhost/gpupack/pause:dev"
TEST_RANGE = ipaddress.IPv4Network("198.18.0.0/15")
NODES = ipaddress.IPv4Network("198.18.0.0/24")
SERVICES = ipaddress.IPv4Network("198.18.128.0/20")
SIMULATED_PODS = ipaddress.IPv4Network("198.18.64.0/20")
PODS = ipaddress.IPv4Network("198.19.0.0/16")


def node_name(index: int) -> str:
    """Return the name of the node with this index, counted from 1."""
    return f"gpupack-{index}"


@dataclass(frozen=True)
class Paths:
    """Paths of all the cluster's files, below one folder."""

    state: Path
    """The `.dev` folder; also the mark that identifies the cluster's processes."""

    @property
    def bin(self) -> Path:
        """Binaries that `build` makes."""
        return self.state / "bin"

    @property
    def log(self) -> Path:
        """Logs of the host's daemons, and a folder of logs for each node."""
        return self.state / "log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with its certificates inside."""
        return self.state / "kubeconfig"

    @property
    def cluster(self) -> Path:
        """The folder that `reset` deletes."""
        return self.state / "cluster"

    @property
    def lock(self) -> Path:
        """The lock that is held while the cluster as a whole changes."""
        return self.state / "cluster.lock"

    @property
    def pki(self) -> Path:
        """Certificates, keys and the components' kubeconfigs."""
        return self.cluster / "pki"

    @property
    def image_store(self) -> Path:
        """Root of the containers-storage that buildah writes (driver overlay)."""
        return self.state / "images" / "root"

    @property
    def loaded_images(self) -> Path:
        """The list of images that every node gets, including nodes that start later."""
        return self.cluster / "images.json"

    def node(self, name: str) -> Path:
        """Return one node's disk."""
        return self.cluster / "nodes" / name

    def unit_log(self, unit: str) -> Path:
        """Return the log of a daemon, such as `etcd` or `gpupack-1/kubelet`."""
        return self.log / f"{unit}.log"


@dataclass(frozen=True)
class Addresses:
    """Ranges from 198.18.0.0/15, which is reserved for tests and routed nowhere."""

    everything: ipaddress.IPv4Network = TEST_RANGE
    """All ranges below; unreachable on the host except where there is a more precise route."""
    nodes: ipaddress.IPv4Network = NODES
    """Range of the bridge and the nodes."""
    services: ipaddress.IPv4Network = SERVICES
    """Range of ClusterIPs."""
    simulated_pods: ipaddress.IPv4Network = SIMULATED_PODS
    """Addresses that kwok writes into the status of pods that do not exist."""
    pods: ipaddress.IPv4Network = PODS
    """Range of pods: one /24 for each node."""
    bridge: str = "gpupack0"
    """Name of the host's bridge; one cluster can be up on a host."""

    @property
    def host(self) -> str:
        """Address of the host on the bridge: API server, cluster DNS, the nodes' gateway."""
        return str(self.nodes[1])

    @property
    def kubernetes_service(self) -> str:
        """ClusterIP of the API server."""
        return str(self.services[1])

    @property
    def maximum_nodes(self) -> int:
        """Maximum nodes in the ranges."""
        return 200

    def node(self, index: int) -> str:
        """Return the address of a node."""
        return str(self.nodes[10 + index])

    def pods_of(self, index: int) -> str:
        """Return the pod range of a node."""
        return str(list(self.pods.subnets(new_prefix=24))[index])

    def veth(self, index: int) -> str:
        """Return the host's end of a node's veth pair."""
        return f"{self.bridge}-{index}"


@dataclass(frozen=True)
class ClusterSettings:
    """One cluster on this host."""

    paths: Paths
    addresses: Addresses = field(default_factory=Addresses)
    masquerade: bool = False
    """Let pods reach beyond this machine. Off: packets that leave the bridge are rejected."""
    ready_seconds: float = 90.0
    """Seconds that `up` waits for a daemon or a node."""
    node_grace_seconds: int = 8
    """Seconds of silence until a node is NotReady. Kubernetes' default, 50 s, is slow for tests."""
    node_lease_seconds: int = 4
    """Seconds of a node's lease; the kubelet renews it four times as often."""

    @property
    def api_server(self) -> str:
        """Address of the API server, from the host and from nodes and pods."""
        return f"https://{self.addresses.host}:6443"
