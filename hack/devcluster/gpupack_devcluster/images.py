# SPDX-License-Identifier: Apache-2.0
"""Images that are on disk once: nodes use the layers that buildah unpacked.

buildah keeps images in a containers-storage (driver overlay): every layer is a folder
`overlay/ID/diff` of unpacked files, with whiteouts and opaque folders in the form that overlayfs
reads. containerd's overlayfs snapshotter needs exactly that form. So an image is loaded by hard
links (image-seed makes them inside containerd's bookkeeping), not by export and import: an image of
5 GB takes seconds and no space, and a changed layer costs only the content of that layer.

Files are shared between store and nodes and never written: a container writes to its own upper
folder, and overlayfs copies a file before it changes it.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpupack_devcluster.commands import run
from gpupack_devcluster.errors import ImageMissing, StoreInvalid

DEFAULT_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Layer:
    """One unpacked layer of an image."""

    chain: str
    """Digest of the stack up to and including this layer."""
    parent: str
    """Digest of the stack below; empty for the lowest layer."""
    folder: str
    """Folder of its files."""


@dataclass(frozen=True)
class ImagePlan:
    """The data about an image that a node's containerd needs."""

    names: tuple[str, ...]
    media_type: str
    manifest: bytes
    config: bytes
    layers: tuple[Layer, ...]

    def to_json(self) -> str:
        """Return the form that image-seed reads."""
        return json.dumps(
            {
                "names": self.names,
                "mediaType": self.media_type,
                "manifest": base64.b64encode(self.manifest).decode(),
                "config": base64.b64encode(self.config).decode(),
                "layers": [asdict(layer) for layer in self.layers],
            }
        )


class ImageStore:
    """A containers-storage root that is only read."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def plan(self, name: str) -> ImagePlan:
        """Return the plan that loads the image of this name."""
        record = self._record(name)
        manifest = self._big_data(record, manifest_key(record))
        content = json.loads(manifest)
        config = self._big_data(record, content["config"]["digest"])
        digests = json.loads(config)["rootfs"]["diff_ids"]
        identifiers = self._layer_identifiers(record["layer"], digests)
        return ImagePlan(
            names=(stored_name(name, record["names"]),),
            media_type=content.get("mediaType", DEFAULT_MANIFEST),
            manifest=manifest,
            config=config,
            layers=self._layers(identifiers, digests),
        )

    def has(self, name: str) -> bool:
        """Return whether the store has an image of this name."""
        return any(stored_name(name, r.get("names") or []) for r in self._records())

    def _record(self, name: str) -> dict[str, Any]:
        for record in self._records():
            if stored_name(name, record.get("names") or []):
                return record
        raise ImageMissing(
            f"no image {name} in the store {self._root}: build it first (make images)"
        )

    def _records(self) -> list[dict[str, Any]]:
        return read_records(self._root / "overlay-images" / "images.json")

    def _big_data(self, record: dict[str, Any], key: str) -> bytes:
        path: Path = self._root / "overlay-images" / record["id"] / big_data_file(key)
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise StoreInvalid(f"image {record['names']} has no {key} ({path})") from error

    def _layer_identifiers(self, top: str, digests: Sequence[str]) -> list[str]:
        records = read_records(self._root / "overlay-layers" / "layers.json")
        return layer_stack({record["id"]: record for record in records}, top, digests)

    def _layers(self, identifiers: Sequence[str], digests: Sequence[str]) -> tuple[Layer, ...]:
        chains = chain_ids(digests)
        parents = ["", *chains]
        folders = [str(self._root / "overlay" / name / "diff") for name in identifiers]
        return tuple(
            Layer(chain=chain, parent=parent, folder=folder)
            for chain, parent, folder in zip(chains, parents, folders, strict=False)
        )


def chain_ids(digests: Sequence[str]) -> list[str]:
    """Return digests of the stacks of layers, from the lowest up (OCI image specification)."""
    chains: list[str] = []
    for digest in digests:
        if not chains:
            chains.append(digest)
            continue
        stack = f"{chains[-1]} {digest}".encode()
        chains.append(f"sha256:{hashlib.sha256(stack).hexdigest()}")
    return chains


def layer_stack(layers: dict[str, dict[str, Any]], top: str, digests: Sequence[str]) -> list[str]:
    """Return identifiers of an image's layers, lowest first, checked against its configuration."""
    found: list[str] = []
    identifier = top
    while identifier:
        if identifier not in layers:
            raise StoreInvalid(f"layer {identifier} is not in the store")
        found.insert(0, identifier)
        identifier = layers[identifier].get("parent", "")
    stored = [layers[name].get("diff-digest") for name in found]
    if stored != list(digests):
        raise StoreInvalid(f"the store has layers {stored}, the image wants {list(digests)}")
    return found


def manifest_key(record: dict[str, Any]) -> str:
    """Return the manifest's name among an image's data."""
    names = record.get("big-data-names") or []
    exact = f"manifest-{record.get('digest', '')}"
    return exact if exact in names else "manifest"


def big_data_file(key: str) -> str:
    """Return the file name that containers-storage gives to data: only plain keys are unchanged."""
    if re.fullmatch(r"[0-9a-z.]+", key):
        return key
    return "=" + base64.b64encode(key.encode()).decode()


def stored_name(name: str, names: Sequence[str]) -> str:
    """Return the store's spelling of an image's name, or nothing: `x:1` may be `localhost/x:1`."""
    spellings = (name, f"localhost/{name}", f"docker.io/{name}", f"docker.io/library/{name}")
    return next((spelling for spelling in spellings if spelling in names), "")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return one of the store's lists; a store without any write has none."""
    if not path.exists():
        return []
    records: list[dict[str, Any]] = json.loads(path.read_text())
    return records


def seed(binary: Path, state: Path, socket: Path, plan: ImagePlan) -> int:
    """Load an image into the containerd behind a socket; return how many layers were new.

    Hard links cannot cross mounts, not even within a file system, and buildah mounts its folder of
    layers onto itself. So this runs in a mount namespace where the state folder is one mount.
    """
    one_mount = 'mount --bind "$1" "$1" && shift && exec "$@"'
    shell = ["unshare", "--mount", "sh", "-ec", one_mount, "sh"]
    return int(run([*shell, state, binary, socket], text_input=plan.to_json()))


def import_archive(ctr: Path, socket: Path, archive: Path) -> None:
    """Load an image archive (docker save, OCI) with containerd's import, which copies its files."""
    run([ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", archive])
