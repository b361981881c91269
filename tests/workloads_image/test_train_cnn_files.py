# SPDX-License-Identifier: Apache-2.0
"""MNIST's and CIFAR-10's files, as torchvision wants them: small ones, in exactly these formats."""

import gzip
import hashlib
import pickle
import struct
import sys

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, MNIST

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.train_cnn.files import read

CHANCE = np.random.default_rng(5)
BATCHES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def pixels(count: int, *shape: int) -> np.ndarray:
    return CHANCE.integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8) % 10


def idx(values: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


def python_2(batch) -> bytes:
    """A dictionary as Python 2 pickled it, as CIFAR-10's are: its names are strings of bytes."""
    parts = [b"\x80\x02}("]
    for name, value in batch.items():
        # Without the protocol's mark before and the stop behind.
        parts += [b"U", bytes([len(name)]), name.encode(), pickle.dumps(value, protocol=2)[2:-1]]
    return b"".join([*parts, b"u."])


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A root: images unpacked, classes packed, these with the sums that torchvision knows."""
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    sums = []
    for part, count in (("train", 20), ("t10k", 10)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels(count, 28, 28)))
        packed = raw / f"{part}-labels-idx1-ubyte.gz"
        packed.write_bytes(gzip.compress(idx(labels(count))))
        sums += [(f"{part}-images-idx3-ubyte.gz", "0" * 32), (packed.name, md5(packed))]
    monkeypatch.setattr(MNIST, "resources", sums)
    return tmp_path


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """A folder whose files have the checksums that torchvision knows."""
    inner = tmp_path / "cifar-10-batches-py"
    inner.mkdir()
    for name in BATCHES:
        batch = {"data": pixels(4, 3072), "labels": [0, 3, 9, 1], "filenames": ["a"] * 4}
        (inner / name).write_bytes(python_2(batch))
    (inner / "batches.meta").write_bytes(python_2({"label_names": list("0123456789")}))
    sums = [[name, md5(inner / name)] for name in BATCHES]
    monkeypatch.setattr(CIFAR10, "train_list", sums[:-1])
    monkeypatch.setattr(CIFAR10, "test_list", sums[-1:])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": md5(inner / "batches.meta")})
    return tmp_path


def test_mnists_files_are_read_packed_or_not(mnist):
    split = read("mnist", mnist)
    first = (mnist / "MNIST/raw/train-images-idx3-ubyte").read_bytes()[16:]
    assert split.train.pixels.shape == (20, 1, 28, 28)
    assert split.train.pixels.tobytes() == first
    assert split.test.labels.tolist() == list(range(10))


def test_cifars_batches_are_read_in_their_order_channels_first(cifar):
    split = read("cifar10", cifar)
    own = read("cifar10", cifar, checksums=False)
    written = (cifar / "cifar-10-batches-py/data_batch_2").read_bytes()
    second = pickle.loads(written, encoding="bytes")
    assert split.train.pixels.shape == (20, 3, 32, 32)
    assert split.train.pixels[4:8].tobytes() == second[b"data"].tobytes()
    assert split.test.labels.tolist() == [0, 3, 9, 1]
    assert own.train.pixels.tobytes() == split.train.pixels.tobytes()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda raw: (raw / "t10k-images-idx3-ubyte").unlink(),
            r"raw has no t10k-images-idx3-ubyte \(nor t10k-images-idx3-ubyte.gz\): --data takes",
        ),
        (
            lambda raw: cut(raw / "train-images-idx3-ubyte"),
            r"train-images-idx3-ubyte is cut or damaged: it holds 15679 bytes .* \(20, 28, 28\)",
        ),
        (
            lambda raw: cut(raw / "train-labels-idx1-ubyte.gz"),
            "train-labels-idx1-ubyte.gz is not the published file, .* or say --no-checksums",
        ),
        (
            lambda raw: (raw / "train-images-idx3-ubyte").write_bytes(b"PNG"),
            "train-images-idx3-ubyte is no IDX file",
        ),
        (
            lambda raw: (raw / "train-labels-idx1-ubyte").write_bytes(idx(labels(19))),
            "20 images and 19 classes",
        ),
        (
            lambda raw: (raw / "t10k-images-idx3-ubyte").write_bytes(idx(pixels(10, 8, 8))),
            r"images are \(8, 8\), not 28 x 28",
        ),
        (
            lambda raw: (raw / "t10k-labels-idx1-ubyte").write_bytes(idx(labels(10) + 1)),
            "classes are not from 0 to 9",
        ),
    ],
)
def test_the_error_of_a_broken_mnist_names_its_file(mnist, spoil, message):
    spoil(mnist / "MNIST/raw")
    with pytest.raises(BadArgument, match=message):
        read("mnist", mnist)


def test_packed_files_of_ones_own_are_taken_where_no_sums_are_asked_for(mnist):
    packed = mnist / "MNIST/raw/t10k-labels-idx1-ubyte.gz"
    packed.write_bytes(gzip.compress(idx(labels(10)[::-1])))
    assert read("mnist", mnist, checksums=False).test.labels.tolist() == list(range(10))[::-1]
    cut(packed)
    with pytest.raises(BadArgument, match=r"labels-idx1-ubyte.gz cannot be unpacked \(.*copy or"):
        read("mnist", mnist, checksums=False)


@pytest.mark.parametrize("sizes", [(2**31, 2**31, 4), (0, 2**31, 2**31)])
def test_sizes_whose_product_overflows_are_refused(mnist, sizes):
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", *sizes)
    (mnist / "MNIST/raw/train-images-idx3-ubyte").write_bytes(header)
    with pytest.raises(BadArgument, match="it holds 0 bytes of data where"):
        read("mnist", mnist)


@pytest.mark.parametrize("name", ["data_batch_4", "test_batch", "batches.meta"])
def test_a_cifar_file_that_is_missing_or_not_the_published_one_is_named(cifar, name):
    path = cifar / "cifar-10-batches-py" / name
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(BadArgument, match=f"{name} is not the published file"):
        read("cifar10", cifar)
    path.unlink()
    with pytest.raises(BadArgument, match=f"cifar-10-batches-py has no {name}: --data takes"):
        read("cifar10", cifar)


def test_the_real_sums_refuse_other_files(cifar, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(BadArgument, match="data_batch_1 is not the published file, whose MD5"):
        read("cifar10", cifar)


@pytest.mark.parametrize(
    "damaged",
    [
        pickle.dumps({"data": [[0] * 3072], "labels": 3}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}),
        b"h\x07.",
        b"c_codecs\nencode\n)R.",
        b"cnumpy\nndarray\n(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft\x85R.",
        b"}b.",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
    ids=["one class", "class 10", "no memo", "wrong call", "too large", "no state", "endless"],
)
def test_the_error_of_a_damaged_pickle_names_its_file(cifar, damaged):
    assert len(read("cifar10", cifar, checksums=False).train.labels) == 20
    (cifar / "cifar-10-batches-py/data_batch_2").write_bytes(damaged)
    with pytest.raises(BadArgument, match="data_batch_2"):
        read("cifar10", cifar, checksums=False)


class Evil:
    def __reduce__(self):
        return (print, ("this program was run",))


@pytest.mark.parametrize("checksums", [True, False])
def test_a_pickle_that_would_run_a_program_is_refused(cifar, checksums, capsys):
    (cifar / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadArgument, match="test_batch"):
        read("cifar10", cifar, checksums=checksums)
    assert not capsys.readouterr().out


def test_without_torchvision_it_is_said_what_to_install(mnist, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(BadArgument, match="install the torchvision that fits this torch"):
        read("mnist", mnist)
