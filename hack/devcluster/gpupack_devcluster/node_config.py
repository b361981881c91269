# SPDX-License-Identifier: Apache-2.0
"""A node's configuration files, commands and boot script, as text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpupack_devcluster import network
from gpupack_devcluster.driver import NodeComponent
from gpupack_devcluster.settings import SANDBOX_IMAGE, ClusterSettings, node_name

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
BOOTED = "/run/booted"

# The folders that a node keeps over a power cut, and their mount points.
DISK_MOUNTS = {
    "kubelet": "/var/lib/kubelet",
    "cni-cache": "/var/lib/cni",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
}


@dataclass(frozen=True)
class NodeConfig:
    """The configuration of one node that is known without touching the host."""

    settings: ClusterSettings
    index: int
    cni_folder: Path
    host_ports: bool = True
    """Whether pods can have ports of their node: CNI's portmap needs iptables on the host."""
    kubelet_flags: tuple[str, ...] = ()
    """Further flags of the kubelet, such as --root-dir."""
    kubelet_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its configuration, such as cgroupRoot."""

    @property
    def name(self) -> str:
        """Name of the node, also its host name."""
        return node_name(self.index)

    @property
    def disk(self) -> Path:
        """The node's folder."""
        return self.settings.paths.node(self.name)

    def files(self) -> dict[str, str]:
        """Return contents of the files on the node's disk, by name."""
        return {
            "containerd.toml": self.containerd(),
            "kubelet.yaml": yaml.safe_dump(self.kubelet()),
            "kube-proxy.yaml": yaml.safe_dump(self.kube_proxy()),
            "cni/10-pods.conflist": json.dumps(self.pod_network(), indent=1),
            "resolv.conf": f"nameserver {self.settings.addresses.host}\n",
        }

    def command(self, component: NodeComponent) -> list[str]:
        """Return the command line of a daemon."""
        paths = self.settings.paths
        match component:
            case NodeComponent.CONTAINERD:
                arguments = ["--config", f"{self.disk}/containerd.toml"]
            case NodeComponent.KUBELET:
                arguments = [
                    f"--config={self.disk}/kubelet.yaml",
                    f"--kubeconfig={paths.pki}/{self.name}.kubeconfig",
                    f"--node-ip={self.settings.addresses.node(self.index)}",
                    *self.kubelet_flags,
                ]
            case NodeComponent.KUBE_PROXY:
                arguments = [f"--config={self.disk}/kube-proxy.yaml"]
        return [str(paths.bin / component), *arguments]

    def containerd(self) -> str:
        """Return containerd's configuration: sockets and state in the node's own /run.

        CDI reads its default folders: /etc/cdi, which is the host's, and /var/run/cdi, which is the
        node's own. A host without CAP_SYS_RESOURCE cannot lower oom_score_adj:
        restrict_oom_score_adj.
        """
        return f"""\
version = 3
root = "{self.disk}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[debug]
  level = "warn"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{SANDBOX_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{self.cni_folder}"]
  conf_dir = "{self.disk}/cni"
"""

    def kubelet(self) -> dict[str, Any]:
        """Return the kubelet's configuration.

        It never deletes images, since they could not be pulled again.
        """
        settings = self.settings
        authority = str(settings.paths.pki / "ca.crt")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "clusterDNS": [settings.addresses.host],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.disk / "resolv.conf"),
            # A host's disk can report itself full when it is not.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": settings.node_lease_seconds,
            "syncFrequency": "10s",
            # By default a container that was killed five times in ten minutes waits for five
            # minutes; tests kill more often.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
            "maxPods": 200,
            **self.kubelet_fields,
        }

    def kube_proxy(self) -> dict[str, Any]:
        """Return kube-proxy's configuration, with nftables in the node's own network namespace."""
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.settings.paths.pki / "proxy.kubeconfig")},
            "mode": "nftables",
            "clusterCIDR": str(self.settings.addresses.pods),
            "conntrack": {"maxPerCore": 0},
        }

    def pod_network(self) -> dict[str, Any]:
        """Return the CNI configuration: each pod has a veth pair.

        `ptp` needs no bridge inside the node. Addresses are leased in /run: after a power cut all
        are free, as all pods are gone.
        """
        pods = self.settings.addresses.pods_of(self.index)
        leases = {
            "type": "host-local",
            "dataDir": "/run/cni-leases",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        cable = {"type": "ptp", "ipMasq": False, "ipam": leases}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        plugins = [cable, ports] if self.host_ports else [cable]
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}

    def boot_script(self, cgroup_mounts: str) -> str:
        """Return shell commands that turn new namespaces into a machine.

        The order matters: the network is last, because BOOTED means that all of it is done, and the
        mounts become shared only when they all exist (the host's own stay out of it).
        """
        binds = "".join(
            f"mount --bind {self.disk}/{folder} {target}\n"
            for folder, target in DISK_MOUNTS.items()
        )
        return (
            "mount -t proc proc /proc\n"
            "mount -t sysfs sysfs /sys\n"
            f"{cgroup_mounts}"
            "mount -t tmpfs -o mode=755 run /run\n"
            "mkdir -p /run/netns /run/lock /run/cdi\n"
            f"{binds}"
            "mount --make-rshared /\n"
            f"hostname {self.name}\n"
            f"{network.node_script(self.settings.addresses, self.index)}"
            f"touch {BOOTED}\n"
        )
