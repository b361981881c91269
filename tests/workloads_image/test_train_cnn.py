# SPDX-License-Identifier: Apache-2.0
"""The train-cnn workload from the inside."""

import gzip
import pickle
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpupack_workloads.devices import Device, choose_device
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.results import encode
from gpupack_workloads.train_cnn import gradients
from gpupack_workloads.train_cnn.folder import read
from gpupack_workloads.train_cnn.gradients import AMP_BOUND, compare, joined, near
from gpupack_workloads.train_cnn.learning import Learnt
from gpupack_workloads.train_cnn.model import network
from gpupack_workloads.train_cnn.need import kept_bytes as image_bytes
from gpupack_workloads.train_cnn.need import making_bytes, training_bytes
from gpupack_workloads.train_cnn.options import CnnOptions
from gpupack_workloads.train_cnn.plan import plan_for, techniques
from gpupack_workloads.train_cnn.session import check, run
from gpupack_workloads.train_cnn.synthetic import make

CHANCE = np.random.default_rng(5)


def pixels(count: int, *shape: int) -> np.ndarray:
    return CHANCE.integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8) % 10


def idx(values: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


@pytest.fixture
def mnist(tmp_path):
    for part, count in (("train", 20), ("t10k", 10)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels(count, 28, 28)))
        packed = gzip.compress(idx(labels(count)))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(packed)
    return tmp_path


BATCHES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


@pytest.fixture
def cifar_python(tmp_path):
    inner = tmp_path / "cifar-10-batches-py"
    inner.mkdir()
    for name in BATCHES:
        batch = {b"data": pixels(4, 3072), b"labels": [0, 3, 9, 1], b"filenames": [b"a"] * 4}
        (inner / name).write_bytes(pickle.dumps(batch, protocol=2))
    return tmp_path


@pytest.fixture
def cifar_binary(tmp_path):
    for name in BATCHES:
        records = np.concatenate([labels(7)[:, None], pixels(7, 3072)], axis=1)
        (tmp_path / f"{name}.bin").write_bytes(records.tobytes())
    return tmp_path


def test_mnists_files_are_read_packed_or_not(mnist):
    split = read(CnnOptions(data="mnist"), mnist)
    assert split.train.pixels.shape == (20, 1, 28, 28)
    assert split.test.labels.tolist() == list(range(10))


def test_both_versions_of_cifar_are_read(cifar_python, tmp_path_factory):
    split = read(CnnOptions(), cifar_python)
    assert split.train.pixels.shape == (20, 3, 32, 32)
    assert split.test.labels.tolist() == [0, 3, 9, 1]


def test_the_binary_version_of_cifar_is_read(cifar_binary):
    split = read(CnnOptions(), cifar_binary)
    assert (split.train.pixels.shape, len(split.test.labels)) == ((35, 3, 32, 32), 7)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "t10k-images-idx3-ubyte").unlink(), "holds neither of t10k-images"),
        (lambda f: cut(f / "train-images-idx3-ubyte"), "15679 bytes of data where its header says"),
        (lambda f: cut(f / "train-labels-idx1-ubyte.gz"), "cannot be read"),
        (lambda f: (f / "train-images-idx3-ubyte").write_bytes(b"PNG"), "is no IDX file"),
        (
            lambda f: (f / "train-labels-idx1-ubyte").write_bytes(idx(labels(19))),
            "20 images and 19 classes",
        ),
    ],
)
def test_a_broken_mnist_is_told_by_its_file(mnist, spoil, message):
    spoil(mnist)
    with pytest.raises(BadArgument, match=message):
        read(CnnOptions(data="mnist"), mnist)


def test_a_class_that_cannot_be_is_told(cifar_binary):
    (cifar_binary / "data_batch_3.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(BadArgument, match=r"data_batch_3.bin: classes are not from 0 to 9"):
        read(CnnOptions(), cifar_binary)


@pytest.mark.parametrize("sizes", [(2**31, 2**31, 4), (0, 2**31, 2**31)])
def test_sizes_whose_product_wraps_are_told(mnist, sizes):
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", *sizes)
    (mnist / "train-images-idx3-ubyte").write_bytes(header)
    with pytest.raises(BadArgument, match="images-idx3-ubyte holds 0 bytes of data where"):
        read(CnnOptions(data="mnist"), mnist)


@pytest.mark.parametrize(
    "damaged",
    [
        pickle.dumps({b"data": [[0] * 3072], b"labels": 3}),
        b"h\x07.",
        b"c_codecs\nencode\n)R.",
        b"cnumpy\nndarray\n(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft\x85R.",
        b"}b.",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
    ids=["one class", "no memo", "wrong call", "too large", "no state", "endless bytes"],
)
def test_a_damaged_pickle_is_told_by_its_file(cifar_python, damaged):
    (cifar_python / "cifar-10-batches-py/data_batch_2").write_bytes(damaged)
    with pytest.raises(BadArgument, match="data_batch_2"):
        read(CnnOptions(), cifar_python)


class Evil:
    def __reduce__(self):
        return (print, ("this program was run",))


def test_a_pickle_that_would_run_a_program_is_refused(cifar_python, capsys):
    (cifar_python / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadArgument, match="print, which is no array"):
        read(CnnOptions(), cifar_python)
    assert not capsys.readouterr().out


def test_parts_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(BadArgument, match="5 parts do not divide a batch of 32"):
        run(CnnOptions(accumulate=5, batch_size=32))


def test_another_gradient_is_refused():
    exact = torch.ones(10)
    assert near("same", exact, exact, 1e-6) == 0
    with pytest.raises(WrongResult, match="sum instead of mean"):
        near("sum instead of mean", 4 * exact, exact, 1e-3)


def without_first_layer(found):
    return found | {"0.weight": torch.zeros_like(found["0.weight"])}


@pytest.mark.parametrize("spoilt", ["cudnn_benchmark", "amp", "channels_last", "accumulation"])
def test_a_first_layer_without_gradient_is_noticed_whatever_the_technique(spoilt, monkeypatch):
    plan = plan_for(CnnOptions(data="mnist"), Device(torch.device("cpu"), "CPU"))
    train = make(CnnOptions(data="mnist"), train=plan.batch_size, test=1).train
    whole = gradients.gradient

    def gradient(technique, *arguments):
        found = whole(technique, *arguments)
        return without_first_layer(found) if technique.name == spoilt else found

    monkeypatch.setattr(gradients, "gradient", gradient)
    with pytest.raises(WrongResult, match=rf"{spoilt}, 0\.weight: the gradient is 1 of its length"):
        compare(plan, train, torch.device("cpu"))


def test_the_whole_gradients_length_does_not_show_a_missing_first_layer():
    plan = plan_for(CnnOptions(data="mnist"), Device(torch.device("cpu"), "CPU"))
    train = make(CnnOptions(data="mnist"), train=plan.batch_size, test=1).train
    exact = gradients.gradient(techniques(plan)[0], plan, train, torch.device("cpu"))
    assert near("spoilt", joined(without_first_layer(exact)), joined(exact), AMP_BOUND) > 0


@pytest.mark.parametrize("found", [{"loss": 2.3}, {"accuracy": 0.1}, {"loss": float("nan")}])
def test_a_technique_with_which_nothing_is_learnt_is_refused(found):
    fine = {"step_seconds": 1.0, "peak_mib": 0, "loss": 0.1, "accuracy": 1.0, "loss_scale": 1.0}
    check("fine", Learnt(**fine), "synthetic", seen=1000)
    with pytest.raises(WrongResult, match="amp: loss"):
        check("amp", Learnt(**fine | found), "synthetic", seen=1000)


def test_nobody_is_judged_by_a_handful_of_images():
    few = Learnt(step_seconds=1.0, peak_mib=0, loss=2.3, accuracy=0.1, loss_scale=1.0)
    check("fp32", few, "synthetic", seen=40)


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_the_estimate_counts_what_is_kept_of_an_image_and_no_more(data, kept_bytes):
    options = CnnOptions(data=data)
    plan = plan_for(options, Device(torch.device("cpu"), "CPU"))
    model = network(channels=options.channels, edge=options.edge, width=plan.width)
    images = torch.randn(4, options.channels, options.edge, options.edge)
    kept = kept_bytes(lambda: model(images), [images, *model.parameters()])
    assert 0.9 * kept < 4 * image_bytes(options, plan) <= kept


def test_images_take_as_much_memory_to_make_as_is_asked_for():
    options = CnnOptions(data="mnist")
    plan = replace(plan_for(options, Device(torch.device("cpu"), "CPU")), train=4096, test=1)
    tracemalloc.start()
    try:
        make(options, train=plan.train, test=plan.test)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * peak < making_bytes(options, plan) <= peak


def test_every_technique_learns_and_has_its_row():
    result = run(CnnOptions(data="mnist", seed=3, batch_size=16))
    assert result.verified
    assert [row["technique"] for row in result.rows] == [
        "fp32", "cudnn_benchmark", "amp", "channels_last", "accumulation",
    ]  # fmt: skip
    assert b"accumulation_step_ms" in encode(result)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_accumulation_and_amp_save_memory_on_a_gpu():
    options = CnnOptions(steps=50)
    metrics = run(options).metrics
    need = training_bytes(options, plan_for(options, choose_device(require_gpu=True)))
    assert need <= metrics["cudnn_benchmark_peak_memory_mib"] * 2**20
    assert metrics["amp_memory_share"] < 0.95
    assert metrics["accumulation_memory_share"] < 0.5
