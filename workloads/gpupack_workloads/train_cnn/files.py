# SPDX-License-Identifier: Apache-2.0
"""Reads MNIST and CIFAR-10 from torchvision's files, and checks them before any work.

FOLDER/MNIST/raw/train-images-idx3-ubyte …         or the published train-images-idx3-ubyte.gz …
FOLDER/cifar-10-batches-py/data_batch_1 …, test_batch, batches.meta

torchvision reads them and has the MD5 sums of the published files: of CIFAR-10's batches, and of
MNIST's files while they are packed. It reports that something is "not found or corrupted"; here
the file is named. Without the sums a pickle may come from anywhere, and may run any program: then
it is read by an unpickler that accepts only NumPy's arrays.
"""

import contextlib
import gzip
import importlib
import io
import math
import pickle
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.settings import temporary_folder
from gpupack_workloads.train_cnn.images import CLASSES, Images, Split

IDX_BYTES = 0x08
MNIST_EDGE = 28
CIFAR_SHAPE = (3, 32, 32)
DIMENSIONS = {"images": 3, "labels": 1}
"""Dimensions of an IDX file, by what its name says."""
AGAIN = "copy or fetch it again"
OWN = "or say --no-checksums if these files are your own"


def read(dataset: str, folder: Path, *, checksums: bool = True) -> Split:
    """Return a data set's images.

    Args:
        dataset: mnist or cifar10.
        folder: torchvision's root.
        checksums: whether the files must be the published ones, where torchvision knows their sums.

    Raises:
        BadArgument: a file is missing, damaged or of something else, or torchvision is missing.
    """
    try:
        reader = read_mnist if dataset == "mnist" else read_cifar
        return reader(folder, checksums=checksums)
    except OSError as error:
        raise BadArgument(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def torchvision(module: str) -> Any:
    """Return one of torchvision's modules; it is imported only if there are files to read.

    Raises:
        BadArgument: it is not installed, or made for another torch.
    """
    try:
        return importlib.import_module(f"torchvision.{module}")
    except (ImportError, RuntimeError) as error:
        raise BadArgument(
            f"real images are read by torchvision, which cannot be used here ({error}):"
            " take the workloads image, or install the torchvision that fits this torch"
        ) from error


def read_mnist(folder: Path, *, checksums: bool) -> Split:
    """Read four IDX files, each as it is or packed."""
    mnist = torchvision("datasets").MNIST
    with unpacked(folder, mnist.resources, checksums=checksums) as root:
        train, test = (mnist(root, train=wanted) for wanted in (True, False))
    raw = folder / "MNIST" / "raw"
    return Split(
        train=images_of(train, raw / "train-labels"), test=images_of(test, raw / "t10k-labels")
    )


def images_of(part: Any, labels: Path) -> Images:
    """Return what torchvision has read of MNIST."""
    return checked(part.data.numpy()[:, None], part.targets.numpy(), labels)


@contextlib.contextmanager
def unpacked(folder: Path, resources: list[tuple[str, str]], *, checksums: bool) -> Iterator[Path]:
    """Give a root in which no file is packed, as torchvision wants it; a volume may be read-only.

    Args:
        folder: the root as it is.
        resources: name of each packed file, and its MD5 sum.
        checksums: whether packed files must have these sums.
    """
    raw = folder / "MNIST" / "raw"
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as scratch:
        inner = Path(scratch, "MNIST", "raw")
        inner.mkdir(parents=True)
        for packed, md5 in resources:
            name = packed.removesuffix(".gz")
            if (raw / name).is_file():
                (inner / name).symlink_to((raw / name).absolute())
                check_idx(raw / name, raw / name)
            else:
                (inner / name).write_bytes(contents(raw, packed, md5 if checksums else None))
                check_idx(inner / name, raw / packed)
        yield Path(scratch)


def contents(raw: Path, packed: str, md5: str | None) -> bytes:
    """Return what a packed file holds."""
    path = raw / packed
    require(path, f"{packed.removesuffix('.gz')} (nor {packed})", inner="MNIST/raw")
    if md5:
        check_sum(path, md5)
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadArgument(f"{path} cannot be unpacked ({error}): {AGAIN}") from error


def require(path: Path, names: str, *, inner: str) -> None:
    """Make sure that a file is there.

    Args:
        path: the file.
        names: possible names of the file.
        inner: its folder below torchvision's root.

    Raises:
        BadArgument: it is not.
    """
    if not path.is_file():
        raise BadArgument(
            f"{path.parent} has no {names}: --data takes what torchvision's data sets call their"
            f" root, a folder with {inner} in it"
        )


def check_sum(path: Path, md5: str) -> None:
    """Make sure that a file is the published one.

    Raises:
        BadArgument: it is not.
    """
    if not torchvision("datasets.utils").check_integrity(path, md5):
        raise BadArgument(
            f"{path} is not the published file, whose MD5 sum is {md5}: {AGAIN}, {OWN}"
        )


def check_idx(path: Path, named: Path) -> None:
    """Make sure that an IDX file is what its header says.

    Args:
        path: the file.
        named: what a user calls it.

    Raises:
        BadArgument: it is of another kind, cut, or has images of another size.
    """
    dimensions = next(count for word, count in DIMENSIONS.items() if word in path.name)
    header = 4 * (1 + dimensions)
    with path.open("rb") as file:
        start = file.read(header).ljust(header, b"\0")
    if start[:4] != bytes((0, 0, IDX_BYTES, dimensions)):
        raise BadArgument(f"{named} is no IDX file of bytes in {dimensions} dimensions: {AGAIN}")
    shape = struct.unpack(f">{dimensions}I", start[4:])
    held = path.stat().st_size - header
    if held <= 0 or held != math.prod(shape):
        raise BadArgument(
            f"{named} is cut or damaged: it holds {max(0, held)} bytes of data where its header"
            f" says {shape}: {AGAIN}"
        )
    if shape[1:] not in {(), (MNIST_EDGE, MNIST_EDGE)}:
        raise BadArgument(f"{named}: images are {shape[1:]}, not {MNIST_EDGE} x {MNIST_EDGE}")


def read_cifar(folder: Path, *, checksums: bool) -> Split:
    """Read six batches of the python version."""
    cifar = torchvision("datasets").CIFAR10
    inner = folder / cifar.base_folder
    batches = {"train": cifar.train_list, "test": cifar.test_list}
    for name, _ in (*cifar.train_list, *cifar.test_list):
        require(inner / name, name, inner=cifar.base_folder)
    if not checksums:
        return Split(
            **{
                part: joined([read_batch(inner / name) for name, _ in batches[part]])
                for part in batches
            }
        )
    return Split(**{part: published(cifar, folder, train=part == "train") for part in batches})


def published(cifar: Any, folder: Path, *, train: bool) -> Images:
    """Let torchvision check the sums of all files, and read one part of the data set."""
    try:
        part = cifar(folder, train=train)
    except RuntimeError as error:
        meta = (cifar.meta["filename"], cifar.meta["md5"])
        for name, md5 in (*cifar.train_list, *cifar.test_list, meta):
            require(folder / cifar.base_folder / name, name, inner=cifar.base_folder)
            check_sum(folder / cifar.base_folder / name, md5)
        raise BadArgument(f"torchvision cannot read CIFAR-10 in {folder}: {error}") from error
    pixels = np.ascontiguousarray(part.data.transpose(0, 3, 1, 2))
    return checked(pixels, np.asarray(part.targets, dtype=np.int64), folder / cifar.base_folder)


def read_batch(path: Path) -> Images:
    """Read an untrusted pickled dictionary with `data` and `labels`."""
    content = io.BytesIO(path.read_bytes())
    try:
        # Text for the names, as torchvision reads them, whichever Python has written the batch.
        batch = Arrays(content, encoding="latin1").load()
        pixels = np.asarray(batch["data"], dtype=np.uint8).reshape(-1, *CIFAR_SHAPE)
        labels = np.asarray(batch["labels"], dtype=np.int64)
    except Exception as error:  # A damaged pickle raises whatever its bytes lead to.
        raise BadArgument(f"{path} is no CIFAR-10 batch ({error!r}): {AGAIN}") from error
    return checked(pixels, labels, path)


class Arrays(pickle.Unpickler):
    """Unpickles only NumPy arrays: a pickle may run any program."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return what NumPy's arrays are made of."""
        if (module_name, global_name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, global_name)
        if module_name.endswith("core.multiarray") and global_name == "_reconstruct":
            # NumPy 1 and 2 keep it in different places; its own pickles say which function it is.
            return np.ndarray(0).__reduce__()[0]
        if (module_name, global_name) == ("_codecs", "encode"):
            return str.encode
        raise pickle.UnpicklingError(f"it holds {module_name}.{global_name}, which is no array")


def checked(pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], path: Path) -> Images:
    """Return images after a check of their classes."""
    if labels.shape != (len(pixels),):
        raise BadArgument(f"{path}: {len(pixels)} images and {labels.size} classes")
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= CLASSES:
        raise BadArgument(f"{path}: classes are not from 0 to {CLASSES - 1}")
    return Images(pixels=pixels, labels=labels)


def joined(parts: list[Images]) -> Images:
    """Return all images of several batches."""
    return Images(
        pixels=np.concatenate([part.pixels for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
    )
