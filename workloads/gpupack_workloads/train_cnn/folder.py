# SPDX-License-Identifier: Apache-2.0
"""Reads MNIST's and CIFAR-10's own files. Whatever is wrong with one is said before any work."""

import gzip
import io
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.train_cnn.images import Images, Split
from gpupack_workloads.train_cnn.options import CnnOptions

CLASSES = 10
IDX_BYTES = 0x08
MNIST = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR_TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
CIFAR_TEST = ["test_batch"]
CIFAR_SHAPE = (3, 32, 32)
CIFAR_PIXELS = 3 * 32 * 32


def read(options: CnnOptions, folder: Path) -> Split:
    """Return what a folder holds.

    Raises:
        BadArgument: a file is missing, broken or of something else.
    """
    return read_mnist(folder) if options.data == "mnist" else read_cifar(folder)


def read_mnist(folder: Path) -> Split:
    """Read four IDX files, each as it is or gzipped."""
    parts = {}
    for part, (images, labels) in MNIST.items():
        pixels = read_idx(folder, images, dimensions=3)
        if pixels.shape[1:] != (28, 28):
            raise BadArgument(f"{folder / images}: images are {pixels.shape[1:]}, not 28 x 28")
        classes = read_idx(folder, labels, dimensions=1).astype(np.int64)
        parts[part] = checked(pixels[:, None], classes, folder / labels)
    return Split(**parts)


def read_idx(folder: Path, name: str, *, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read one IDX file: magic number, sizes, bytes."""
    path = existing(folder, name, f"{name}.gz")
    content = contents(path)
    header = 4 * (1 + dimensions)
    if content[:4] != bytes((0, 0, IDX_BYTES, dimensions)):
        raise BadArgument(f"{path} is no IDX file of bytes in {dimensions} dimensions")
    shape = np.frombuffer(content[4:header].ljust(header - 4, b"\0"), dtype=">u4").tolist()
    values = np.frombuffer(content[header:], dtype=np.uint8)
    # NumPy's product would wrap, and nothing has no shape with such edges.
    if values.size == 0 or values.size != math.prod(shape):
        raise BadArgument(
            f"{path} holds {values.size} bytes of data where its header says {tuple(shape)}"
        )
    return values.reshape(shape)


def read_cifar(folder: Path) -> Split:
    """Read six batches, of the binary version where there is one, else of the python version."""
    inner = [folder / name for name in ("cifar-10-batches-bin", "cifar-10-batches-py")]
    folder = next((path for path in inner if path.is_dir()), folder)
    return Split(
        train=joined([read_batch(folder, name) for name in CIFAR_TRAIN]),
        test=joined([read_batch(folder, name) for name in CIFAR_TEST]),
    )


def read_batch(folder: Path, name: str) -> Images:
    """Read one batch of either version."""
    path = existing(folder, f"{name}.bin", name)
    if path.suffix == ".bin":
        return binary_batch(path)
    return python_batch(path)


def binary_batch(path: Path) -> Images:
    """Read records of one byte for the class and 3072 for the pixels."""
    content = np.frombuffer(contents(path), dtype=np.uint8)
    if content.size == 0 or content.size % (1 + CIFAR_PIXELS):
        raise BadArgument(f"{path} is no CIFAR-10 batch: {content.size} bytes are no whole records")
    records = content.reshape(-1, 1 + CIFAR_PIXELS)
    return checked(records[:, 1:].reshape(-1, *CIFAR_SHAPE), records[:, 0].astype(np.int64), path)


def python_batch(path: Path) -> Images:
    """Read a pickled dictionary with `data` and `labels`."""
    content = io.BytesIO(contents(path))
    try:
        batch = Arrays(content, encoding="bytes").load()
        pixels = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, *CIFAR_SHAPE)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except Exception as error:  # A damaged pickle raises whatever its bytes lead to.
        raise BadArgument(f"{path} is no CIFAR-10 batch: {error!r}") from error
    return checked(pixels, labels, path)


class Arrays(pickle.Unpickler):
    """Unpickles NumPy arrays and nothing else: a pickle may run any program."""

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
    """Return images whose classes can be."""
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


def existing(folder: Path, *names: str) -> Path:
    """Return the first of these files that is there."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise BadArgument(f"{folder} holds neither of {', '.join(names)}")


def contents(path: Path) -> bytes:
    """Return a file's bytes, unpacked."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error
