# SPDX-License-Identifier: Apache-2.0
"""Where the agents are: a reflector's store of their pods."""

from typing import Final

from gpupack_kube.objects import Pod

SELECTOR: Final = {
    "labelSelector": "app.kubernetes.io/name=gpupack,app.kubernetes.io/component=agent"
}


class AgentPods:
    """Addresses by node, of pods that run; who may make pods beside the API may name another."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}

    def addresses(self) -> dict[str, str]:
        """Of each node the address of its agent."""
        return {
            pod.spec.node_name: pod.status.pod_ip
            for pod in self._pods.values()
            if pod.spec.node_name and pod.status.pod_ip and pod.status.phase == "Running"
        }

    def replace(self, items: list[Pod], /) -> None:
        """These are all."""
        self._pods = {item.metadata.uid: item for item in items}

    def upsert(self, item: Pod, /) -> None:
        """One appeared or changed."""
        self._pods[item.metadata.uid] = item

    def remove(self, item: Pod, /) -> None:
        """One is gone."""
        self._pods.pop(item.metadata.uid, None)
