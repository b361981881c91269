# SPDX-License-Identifier: Apache-2.0
"""Where the exporter of this node listens: as the chart says, or found among the node's pods.

Anybody can label a pod of his own, so it is found in namespaces alone that the administrator names.
The agent watches the pods of its node anyway: finding it takes no further right.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from gpupack_crds import names
from gpupack_kube import objects

AUTO: Final = "auto"
PORT: Final = 9400
"""DCGM exporter's own, unless the annotation says another one."""

LABELS: Final = (
    ("app.kubernetes.io/name", "dcgm-exporter"),
    ("app", "nvidia-dcgm-exporter"),
)
"""Of the pods that the exporter's own chart and NVIDIA's GPU Operator make."""


class ExporterPods:
    """Filled by a reflector with the pods of this node.

    Args:
        namespaces: pods elsewhere are none.
    """

    def __init__(self, namespaces: Collection[str]) -> None:
        self._namespaces = frozenset(namespaces)
        self._urls: dict[tuple[str, str], str] = {}

    @property
    def url(self) -> str | None:
        """Of the first of them by name; None: there is none."""
        return self._urls[min(self._urls)] if self._urls else None

    def replace(self, items: list[objects.Pod], /) -> None:
        """Forget everything and hold exactly these."""
        self._urls.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: objects.Pod, /) -> None:
        """A pod appeared or changed."""
        found = url_of(item) if item.metadata.namespace in self._namespaces else None
        if found is None:
            self.remove(item)
        else:
            self._urls[item.key] = found

    def remove(self, item: objects.Pod, /) -> None:
        """A pod is gone."""
        self._urls.pop(item.key, None)


def url_of(pod: objects.Pod) -> str | None:
    """Where a pod shows DCGM's figures; None: it is no exporter, or does not run."""
    port = _port(pod.metadata)
    if port is None or pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
        return None
    try:
        address = ipaddress.ip_address(pod.status.pod_ip)
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6
    return f"http://{host}:{port}/metrics"


def _port(metadata: objects.ObjectMeta) -> int | None:
    said = metadata.annotations.get(names.DCGM_EXPORTER_ANNOTATION)
    if said is not None:
        is_port = said.isascii() and said.isdigit() and len(said) <= len("65535")
        return int(said) if is_port and 0 < int(said) < 1 << 16 else None
    return PORT if any(metadata.labels.get(key) == value for key, value in LABELS) else None
