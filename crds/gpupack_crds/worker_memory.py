# SPDX-License-Identifier: Apache-2.0
"""The tmpfs that gpupack mounts for workers at /dev/shm, as a pod's spec shows it.

The operator sets NCCL's variables for one memory of several pods only where the agent would mount
it, so both decide by this rule.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from gpupack_crds import names
from gpupack_kubeclient import objects


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


class MountingContainer(objects.View, frozen=True):
    """A container and the volumes that it mounts."""

    name: str = ""
    volume_mounts: tuple[VolumeMount, ...] = ()


class MountingPodSpec(objects.View, frozen=True):
    """The part of a pod's spec that says which containers mount which volumes."""

    containers: tuple[MountingContainer, ...] = ()
    init_containers: tuple[MountingContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()


class Mounting(Protocol):
    """A container, in any view that has its mounts."""

    @property
    def name(self) -> str:
        """Name of the container."""

    @property
    def volume_mounts(self) -> Sequence[VolumeMount]:
        """Volumes that it mounts."""


class Mounts(Protocol):
    """A pod's spec, in any view that has volumes and mounts."""

    @property
    def containers(self) -> Sequence[Mounting]:
        """Containers of the pod."""

    @property
    def init_containers(self) -> Sequence[Mounting]:
        """Init containers and sidecars of the pod."""

    @property
    def volumes(self) -> Sequence[Volume]:
        """Volumes of the pod."""


def has_shm(spec: Mounts, containers: Collection[str]) -> bool:
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
