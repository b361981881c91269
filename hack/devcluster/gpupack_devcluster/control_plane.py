# SPDX-License-Identifier: Apache-2.0
"""The control plane: etcd, the Kubernetes daemons and cluster DNS, as processes of the host.

All listen on the bridge's address or on loopback, never on the host's real interfaces.
"""

import os
from pathlib import Path

from gpupack_devcluster import processes
from gpupack_devcluster.certificates import Authority, control_plane_identities
from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.errors import NotUp, UnknownName
from gpupack_devcluster.kubectl import Kubectl, wait_until
from gpupack_devcluster.processes import Process
from gpupack_devcluster.settings import ClusterSettings

ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
POD_END = Path(__file__).with_name("kwok_pod_end.yaml")

# These start together: the API server waits for etcd by itself.
STORE = (HostComponent.ETCD, HostComponent.API_SERVER)
# These start when the API server is ready: kube-controller-manager gives up on it after 20 s, which
# a busy machine exceeds, and then ends for good.
CONTROLLERS = (
    HostComponent.CONTROLLER_MANAGER,
    HostComponent.SCHEDULER,
    HostComponent.COREDNS,
)


class ControlPlane:
    """The host's daemons."""

    def __init__(self, settings: ClusterSettings, kubectl: Kubectl) -> None:
        self._settings = settings
        self._kubectl = kubectl

    def prepare(self, authority: Authority) -> None:
        """Write certificates, kubeconfigs and configuration files."""
        paths, addresses = self._settings.paths, self._settings.addresses
        authority.prepare()
        service = addresses.kubernetes_service
        for identity in control_plane_identities(host=addresses.host, service=service):
            authority.issue(identity)
        (paths.cluster / "Corefile").write_text(corefile(self._settings))
        paths.kubeconfig.touch(mode=0o600)
        paths.kubeconfig.write_text((paths.pki / "admin.kubeconfig").read_text())
        give_to_caller(paths.kubeconfig)

    def daemon(self, component: HostComponent) -> Process | None:
        """Return a daemon, if it runs."""
        return processes.find(self._settings.paths.state, component)

    def start(self, component: HostComponent) -> None:
        """Start a daemon unless it runs."""
        if self.daemon(component) is not None:
            return
        paths = self._settings.paths
        binary = str(paths.bin / component)
        processes.spawn(
            [binary, *arguments(component, self._settings)],
            environment=processes.daemon_environment(paths.state, component, paths.bin),
            log=paths.unit_log(component),
        )

    def kill(self, component: HostComponent) -> None:
        """Kill a daemon with `kill -9`."""
        running = self.daemon(component)
        if running is None:
            raise NotUp(f"{component} does not run")
        processes.kill([running])

    def wait_for_api(self) -> None:
        """Wait until the API server is ready."""
        log = self._settings.paths.unit_log(HostComponent.API_SERVER)
        wait_until(
            self._kubectl.api_is_ready,
            what=f"API server (log: {log})",
            seconds=self._settings.ready_seconds,
        )


def give_to_caller(path: Path) -> None:
    """Let the caller of sudo use a file that only its owner may read."""
    if "SUDO_UID" in os.environ:
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))


def host_component(name: str) -> HostComponent:
    """Return a component by its name."""
    try:
        return HostComponent(name)
    except ValueError:
        known = ", ".join(HostComponent)
        raise UnknownName(f"no component {name!r} on the host: {known}") from None


def arguments(component: HostComponent, settings: ClusterSettings) -> list[str]:
    """Return the arguments of a daemon."""
    match component:
        case HostComponent.ETCD:
            return etcd(settings)
        case HostComponent.API_SERVER:
            return api_server(settings)
        case HostComponent.CONTROLLER_MANAGER:
            return controller_manager(settings)
        case HostComponent.SCHEDULER:
            return scheduler(settings)
        case HostComponent.COREDNS:
            return ["-conf", f"{settings.paths.cluster}/Corefile"]
        case HostComponent.KWOK:
            return kwok(settings, f"{settings.paths.pki}/kwok.kubeconfig")


def etcd(settings: ClusterSettings) -> list[str]:
    """Return etcd's arguments; without fsync: a test cluster need not survive a machine crash."""
    return [
        f"--data-dir={settings.paths.cluster}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={ETCD_PEER}",
        f"--initial-advertise-peer-urls={ETCD_PEER}",
        f"--initial-cluster=default={ETCD_PEER}",
        "--unsafe-no-fsync",
    ]


def api_server(settings: ClusterSettings) -> list[str]:
    """Return kube-apiserver's arguments.

    It calls kubelets by address, since the host's DNS does not know the nodes.
    """
    pki, host = settings.paths.pki, settings.addresses.host
    return [
        f"--etcd-servers={ETCD}",
        f"--bind-address={host}",
        f"--advertise-address={host}",
        "--secure-port=6443",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/admin.crt",
        f"--kubelet-client-key={pki}/admin.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={settings.addresses.services}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
    ]


def controller_manager(settings: ClusterSettings) -> list[str]:
    """Return kube-controller-manager's arguments.

    It detects a dead node fast. Pod ranges are fixed and not assigned by it.
    """
    pki = settings.paths.pki
    return [
        f"--kubeconfig={pki}/controller-manager.kubeconfig",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--cluster-cidr={settings.addresses.pods}",
        "--allocate-node-cidrs=false",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={settings.node_grace_seconds}s",
    ]


def scheduler(settings: ClusterSettings) -> list[str]:
    """Return kube-scheduler's arguments.

    It uses no Lease: after losing one it would end, which happens on a busy host.
    """
    return [
        f"--kubeconfig={settings.paths.pki}/scheduler.kubeconfig",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def kwok(settings: ClusterSettings, kubeconfig: str) -> list[str]:
    """Return kwok's arguments.

    It manages the nodes with its annotation; our own stages define which pods end.
    """
    return [
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--config={settings.paths.bin}/kwok-stages.yaml",
        f"--config={POD_END}",
        f"--cidr={settings.addresses.simulated_pods}",
        f"--node-ip={settings.addresses.host}",
        f"--node-lease-duration-seconds={settings.node_lease_seconds}",
    ]


def corefile(settings: ClusterSettings) -> str:
    """Return the configuration of cluster DNS; a cache would keep negative answers for seconds."""
    forward = "  forward . /etc/resolv.conf\n" if settings.masquerade else ""
    return (
        ".:53 {\n"
        f"  bind {settings.addresses.host}\n"
        "  errors\n"
        "  kubernetes cluster.local in-addr.arpa {\n"
        f"    kubeconfig {settings.paths.pki}/coredns.kubeconfig\n"
        "  }\n"
        f"{forward}"
        "}\n"
    )
