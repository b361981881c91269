# SPDX-License-Identifier: Apache-2.0
"""Images from this host's own files, where no download and no build is possible.

A layer is a folder of hard links to the host's files (copies if it is on another file system),
so an image of 8 GB takes a second and no space. Layers and records have buildah's format, so that a
reader of the store (images.py) sees no difference.

Linked files are shared with the host and never written: a container writes to its own folder.
"""

import errno
import fnmatch
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import StoreInvalid
from gpupack_devcluster.images import big_data_file

MARK = "made-from-host"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK}


@dataclass(frozen=True)
class Tree:
    """Files of the host and their place in the image."""

    source: Path
    target: str
    """Absolute path in the image."""
    leave_out: tuple[str, ...] = ()
    """Patterns of paths below the source; a matching folder is left out with all its content."""


@dataclass(frozen=True)
class HostLayer:
    """A layer: trees, and links that it adds."""

    name: str
    trees: tuple[Tree, ...]
    links: Mapping[str, str]
    """Absolute path in the image -> target of the symbolic link."""
    folders: Mapping[str, int]
    """Folders that the layer adds, with their permissions."""
    loader_cache: bool = False
    """Write the dynamic loader's cache for the libraries in this layer; programs read it, too."""


@dataclass(frozen=True)
class HostImage:
    """An image: its name, its layers from the lowest up, and how it runs (OCI `config`)."""

    name: str
    layers: tuple[HostLayer, ...]
    config: Mapping[str, Any]


class HostStore:
    """A containers-storage root with only images of host files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, images: Sequence[HostImage]) -> None:
        """Replace the content of the store."""
        if self._root.exists() and not (self._root / MARK).exists():
            raise StoreInvalid(
                f"{self._root} holds images that were built: remove it, or use these images"
            )
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)
        (self._root / MARK).touch()
        digests = {layer.name: self._fill(layer) for image in images for layer in image.layers}
        self._write_layers(images, digests)
        records = [self._write_image(image, digests) for image in images]
        write_json(self._root / "overlay-images" / "images.json", records)

    def _fill(self, layer: HostLayer) -> str:
        """Create the layer's folder unless it exists; return the digest of its content."""
        folder = self._root / "overlay" / layer.name / "diff"
        if not folder.exists():
            folder.mkdir(parents=True)
            fill(folder, layer)
        return digest_of(folder)

    def _write_layers(self, images: Sequence[HostImage], digests: Mapping[str, str]) -> None:
        parents: dict[str, str] = {}
        for image in images:
            below = ""
            for layer in image.layers:
                if parents.setdefault(layer.name, below) != below:
                    raise StoreInvalid(f"layer {layer.name} is on two different layers")
                below = layer.name
        records = [
            {"id": name, "parent": parent, "diff-digest": digests[name]}
            for name, parent in parents.items()
        ]
        write_json(self._root / "overlay-layers" / "layers.json", records)

    def _write_image(self, image: HostImage, digests: Mapping[str, str]) -> dict[str, Any]:
        stack = [digests[layer.name] for layer in image.layers]
        config = config_of(image, stack)
        identifier = hashlib.sha256(config).hexdigest()
        folder = self._root / "overlay-images" / identifier
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest").write_bytes(manifest_of(config, stack))
        key = f"sha256:{identifier}"
        (folder / big_data_file(key)).write_bytes(config)
        return {
            "id": identifier,
            "names": [image.name],
            "layer": image.layers[-1].name,
            "big-data-names": ["manifest", key],
        }


def fill(folder: Path, layer: HostLayer) -> None:
    """Put a layer's files, links and folders below a folder."""
    for path, mode in layer.folders.items():
        inside(folder, path).mkdir(parents=True, exist_ok=True)
        inside(folder, path).chmod(mode)
    for tree in layer.trees:
        target = inside(folder, tree.target)
        target.parent.mkdir(parents=True, exist_ok=True)
        link(tree.source, target, tree.leave_out)
    for path, text in layer.links.items():
        target = inside(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(text)
    if layer.loader_cache:
        run(["ldconfig", "-X", "-r", folder])


def inside(folder: Path, path: str) -> Path:
    """Return the location of an image's absolute path."""
    return folder / path.lstrip("/")


def link(source: Path, target: Path, leave_out: Sequence[str] = ()) -> None:
    """Link a file, or a tree up to where other file systems are mounted."""
    if source.is_dir() and not source.is_symlink():
        link_folder(source, target, leave_out, device=source.stat().st_dev)
    else:
        link_file(source, target)


def link_folder(source: Path, target: Path, leave_out: Sequence[str], *, device: int) -> None:
    """Link the content of a folder; skip sockets and device nodes."""
    target.mkdir(exist_ok=True)
    shutil.copymode(source, target)
    for entry in os.scandir(source):
        if any(fnmatch.fnmatch(entry.name, pattern) for pattern in names_in(leave_out)):
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if status.st_dev == device:
                rest = below(leave_out, entry.name)
                link_folder(Path(entry.path), target / entry.name, rest, device=device)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            link_file(Path(entry.path), target / entry.name)


def names_in(patterns: Sequence[str]) -> list[str]:
    """Return the patterns for names in this folder."""
    return [pattern.removeprefix("**/") for pattern in patterns if is_local(pattern)]


def is_local(pattern: str) -> bool:
    """Return whether a pattern is for a name, not for a path further down."""
    return "/" not in pattern.removeprefix("**/")


def below(patterns: Sequence[str], name: str) -> list[str]:
    """Return the patterns that apply in a folder below; `**/` applies everywhere.

    >>> below(["local/cuda*", "**/libcuda*", "share/man"], "local")
    ['cuda*', '**/libcuda*']
    """
    kept = []
    for pattern in patterns:
        first, _, rest = pattern.partition("/")
        if first == "**":
            kept.append(pattern)
        elif rest and fnmatch.fnmatch(name, first):
            kept.append(rest)
    return kept


def link_file(source: Path, target: Path) -> None:
    """Hard-link a file or symbolic link; copy it where that cannot be done."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
        shutil.copy2(source, target, follow_symlinks=False)


def digest_of(folder: Path) -> str:
    """Return a digest that changes with the name, size or time of any file below.

    The content is not read: that would take a minute for a Python with CUDA in it.
    """
    digest = hashlib.sha256()
    for line in describe(folder, ""):
        digest.update(line.encode(errors="surrogateescape"))
    return f"sha256:{digest.hexdigest()}"


def describe(folder: Path, prefix: str) -> Iterator[str]:
    """Yield one line for each entry below a folder, in a fixed order."""
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        status = entry.stat(follow_symlinks=False)
        path = f"{prefix}/{entry.name}"
        if stat.S_ISDIR(status.st_mode):
            yield f"{path} {status.st_mode}\n"
            yield from describe(Path(entry.path), path)
        elif stat.S_ISLNK(status.st_mode):
            yield f"{path} -> {Path(entry.path).readlink()}\n"
        else:
            yield f"{path} {status.st_mode} {status.st_size} {status.st_mtime_ns}\n"


def config_of(image: HostImage, stack: Sequence[str]) -> bytes:
    """Return the image's configuration (OCI)."""
    return encode(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": stack},
        }
    )


def manifest_of(config: bytes, stack: Sequence[str]) -> bytes:
    """Return the image's manifest (OCI). Its layers' blobs do not exist, so they have no size."""
    described = {
        "mediaType": CONFIG_TYPE,
        "digest": f"sha256:{hashlib.sha256(config).hexdigest()}",
        "size": len(config),
    }
    layers = [{"mediaType": LAYER_TYPE, "digest": digest, "size": 0} for digest in stack]
    return encode(
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": described, "layers": layers}
    )


def encode(content: Mapping[str, Any]) -> bytes:
    """Return JSON that is always the same for the same content."""
    return json.dumps(content, sort_keys=True).encode()


def write_json(path: Path, content: Any) -> None:
    """Write one of the store's lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))
