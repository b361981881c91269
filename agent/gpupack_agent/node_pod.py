# SPDX-License-Identifier: Apache-2.0
"""Pods as the agent reads them, with the volumes that their containers mount."""

from typing import Final

from gpupack_crds.worker_memory import Volume, VolumeMount
from gpupack_kubeclient import objects
from gpupack_kubeclient.resources import PODS, Resource


class NodeContainer(objects.Container, frozen=True):
    """A container and the volumes that it mounts."""

    volume_mounts: tuple[VolumeMount, ...] = ()


class NodePodSpec(objects.PodSpec, frozen=True):
    """The spec of a pod, with its volumes."""

    containers: tuple[NodeContainer, ...] = ()
    init_containers: tuple[NodeContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()


class NodePod(objects.Pod, frozen=True):
    """A pod of the node."""

    spec: NodePodSpec = NodePodSpec()


NODE_PODS: Final = Resource(PODS.prefix, PODS.plural, NodePod)
