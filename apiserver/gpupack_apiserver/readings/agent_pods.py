# SPDX-License-Identifier: Apache-2.0
"""Addresses of the agents: a reflector's store of their pods."""

from typing import Final

from gpupack_kubeclient.objects import Pod

SELECTOR: Final = {
    "labelSelector": "app.kubernetes.io/name=gpupack,app.kubernetes.io/component=agent"
}


class AgentPods:
    """Addresses of running agents' pods, by node; a user who may create pods there may fake one."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}

    def addresses(self) -> dict[str, str]:
        """Return the agent's address of each node."""
        return {
            pod.spec.node_name: pod.status.pod_ip
            for pod in self._pods.values()
            if pod.spec.node_name and pod.status.pod_ip and pod.status.phase == "Running"
        }

    def replace(self, items: list[Pod], /) -> None:
        """Replace all pods."""
        self._pods = {item.metadata.uid: item for item in items}

    def upsert(self, item: Pod, /) -> None:
        """Add or update a pod."""
        self._pods[item.metadata.uid] = item

    def remove(self, item: Pod, /) -> None:
        """Remove a pod."""
        self._pods.pop(item.metadata.uid, None)
