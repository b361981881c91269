# SPDX-License-Identifier: Apache-2.0
"""Writes real handwritten digits as MNIST's files, for hosts without MNIST.

    python -m gpupack_workloads.train_cnn.digits FOLDER
    python -m gpupack_workloads train-cnn --dataset mnist --data FOLDER

They are scikit-learn's: 1,797 digits of 8 x 8 pixels in 17 greys (Alpaydin & Kaynak 1998, UCI
machine learning repository), which come with the package. As in MNIST each is enlarged to 20 x 20
pixels and put into the middle of 28 x 28; every fifth is for testing.
"""

import importlib
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

LARGEST_GREY, SMALL_EDGE = 16, 8
INNER_EDGE, BORDER = 20, 4
TESTED = 5


def write(folder: Path) -> None:
    """Write four files where torchvision looks for MNIST's.

    Args:
        folder: torchvision's root; it is made.
    """
    digits: Any = importlib.import_module("sklearn.datasets").load_digits()
    pixels, labels = enlarged(digits.images), digits.target.astype(np.uint8)
    tested = np.arange(len(labels)) % TESTED == 0
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, chosen in (("train", ~tested), ("t10k", tested)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels[chosen]))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels[chosen]))


def enlarged(images: np.ndarray) -> np.ndarray:
    """Return images [N, 8, 8] from 0 to 16 as bytes [N, 28, 28], bilinearly."""
    middles = (np.arange(INNER_EDGE) + 0.5) * SMALL_EDGE / INNER_EDGE - 0.5
    # What each of the small pixels, a row, gives to each of the new ones.
    weights = [np.interp(middles, np.arange(SMALL_EDGE), pixel) for pixel in np.eye(SMALL_EDGE)]
    wide = np.transpose(weights) @ images @ weights
    framed = np.pad(wide, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    return (framed * 255 / LARGEST_GREY).round().astype(np.uint8)


def idx(values: np.ndarray) -> bytes:
    """Return bytes as an IDX file: magic number, sizes, values."""
    header = bytes((0, 0, 0x08, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
