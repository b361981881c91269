# SPDX-License-Identifier: Apache-2.0
"""The address of this node's exporter: configured, or found among the node's pods.

Any tenant can label a pod, so the exporter is only found in namespaces that the administrator
names. The agent watches the pods of its node anyway, so this needs no further right.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from gpupack_crds import names
from gpupack_kubeclient import objects

AUTO: Final = "auto"
PORT: Final = 9400
"""DCGM exporter's default port; the pod's annotation can set another one."""

LABELS: Final = (
    ("app.kubernetes.io/name", "dcgm-exporter"),
    ("app", "nvidia-dcgm-exporter"),
)
"""The labels of the pods of the exporter's own chart and of NVIDIA's GPU Operator."""


class ExporterPods:
    """The exporter pods of this node, filled by a reflector.

    Args:
        namespaces: the namespaces in which a pod counts as an exporter.
    """

    def __init__(self, namespaces: Collection[str]) -> None:
        self._namespaces = frozenset(namespaces)
        self._urls: dict[tuple[str, str], str] = {}

    @property
    def url(self) -> str | None:
        """Return the URL of the first exporter by namespace and name; None: there is none."""
        return self._urls[min(self._urls)] if self._urls else None

    def replace(self, items: list[objects.Pod], /) -> None:
        """Replace all pods by these."""
        self._urls.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: objects.Pod, /) -> None:
        """Add or update a pod."""
        found = url_of(item) if item.metadata.namespace in self._namespaces else None
        if found is None:
            self.remove(item)
        else:
            self._urls[item.key] = found

    def remove(self, item: objects.Pod, /) -> None:
        """Remove a pod that is gone."""
        self._urls.pop(item.key, None)


def url_of(pod: objects.Pod) -> str | None:
    """Return the URL of a pod's DCGM metrics; None: it is no exporter, or does not run."""
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
    annotation = metadata.annotations.get(names.DCGM_EXPORTER_ANNOTATION)
    if annotation is not None:
        is_port = annotation.isascii() and annotation.isdigit() and len(annotation) <= len("65535")
        return int(annotation) if is_port and 0 < int(annotation) < 1 << 16 else None
    return PORT if any(metadata.labels.get(key) == value for key, value in LABELS) else None
