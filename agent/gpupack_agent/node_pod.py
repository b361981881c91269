# SPDX-License-Identifier: Apache-2.0
"""Pods as the agent reads them, with the volumes that their containers mount."""

from collections.abc import Collection
from typing import Final

from gpupack_crds import names
from gpupack_kube import objects
from gpupack_kube.resources import PODS, Resource


class VolumeMount(objects.View, frozen=True):
    """The place of a volume in a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class EmptyDir(objects.View, frozen=True):
    """A volume that the kubelet creates for the pod."""

    medium: str = ""


class Volume(objects.View, frozen=True):
    """A volume of a pod."""

    name: str = ""
    empty_dir: EmptyDir | None = None


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


def has_shm(spec: NodePodSpec, containers: Collection[str]) -> bool:
    """Tell whether all these containers mount gpupack's tmpfs for workers at /dev/shm."""
    tmpfs = (each.empty_dir for each in spec.volumes if each.name == names.SHM_VOLUME)
    is_tmpfs = any(each is not None and each.medium == "Memory" for each in tmpfs)
    mounting = {
        each.name
        for each in (*spec.containers, *spec.init_containers)
        if any(map(_is_shm, each.volume_mounts))
    }
    return is_tmpfs and bool(containers) and mounting.issuperset(containers)


def _is_shm(mount: VolumeMount) -> bool:
    is_whole = not (mount.sub_path or mount.sub_path_expr or mount.read_only)
    is_there = mount.mount_path.rstrip("/") == names.SHM_PATH
    return is_whole and is_there and mount.name == names.SHM_VOLUME
