# SPDX-License-Identifier: Apache-2.0
"""The train-cnn workload from the inside."""

import tracemalloc
from dataclasses import replace

import pytest
import torch

from gpupack_workloads.devices import Device, choose_device
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.results import encode
from gpupack_workloads.train_cnn import gradients
from gpupack_workloads.train_cnn.gradients import AMP_BOUND, compare, joined, near
from gpupack_workloads.train_cnn.learning import TechniqueResult
from gpupack_workloads.train_cnn.memory_estimate import kept_bytes as image_bytes
from gpupack_workloads.train_cnn.memory_estimate import making_bytes, training_bytes
from gpupack_workloads.train_cnn.model import network
from gpupack_workloads.train_cnn.options import CnnOptions
from gpupack_workloads.train_cnn.plan import plan_for, techniques
from gpupack_workloads.train_cnn.session import check, run
from gpupack_workloads.train_cnn.synthetic import make


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
    plan = plan_for(CnnOptions(shape="mnist"), Device(torch.device("cpu"), "CPU"))
    train = make(CnnOptions(shape="mnist"), train=plan.batch_size, test=1).train
    whole = gradients.gradient

    def gradient(technique, *arguments):
        found = whole(technique, *arguments)
        return without_first_layer(found) if technique.name == spoilt else found

    monkeypatch.setattr(gradients, "gradient", gradient)
    with pytest.raises(WrongResult, match=rf"{spoilt}, 0\.weight: the gradient is 1 of its length"):
        compare(plan, train, torch.device("cpu"))


def test_the_whole_gradients_length_does_not_show_a_missing_first_layer():
    plan = plan_for(CnnOptions(shape="mnist"), Device(torch.device("cpu"), "CPU"))
    train = make(CnnOptions(shape="mnist"), train=plan.batch_size, test=1).train
    exact = gradients.gradient(techniques(plan)[0], plan, train, torch.device("cpu"))
    assert near("spoilt", joined(without_first_layer(exact)), joined(exact), AMP_BOUND) > 0


@pytest.mark.parametrize("found", [{"loss": 2.3}, {"accuracy": 0.1}, {"loss": float("nan")}])
def test_a_technique_with_which_nothing_is_learnt_is_refused(found):
    fine = {"step_seconds": 1.0, "peak_mib": 0, "loss": 0.1, "accuracy": 1.0, "loss_scale": 1.0}
    check("fine", TechniqueResult(**fine), "synthetic", seen=1000)
    with pytest.raises(WrongResult, match="amp: loss"):
        check("amp", TechniqueResult(**fine | found), "synthetic", seen=1000)


def test_a_handful_of_images_gives_no_judgement():
    few = TechniqueResult(step_seconds=1.0, peak_mib=0, loss=2.3, accuracy=0.1, loss_scale=1.0)
    check("fp32", few, "synthetic", seen=40)


@pytest.mark.parametrize("shape", ["mnist", "cifar10"])
def test_the_estimate_counts_what_is_kept_of_an_image_and_no_more(shape, kept_bytes):
    options = CnnOptions(shape=shape)
    plan = plan_for(options, Device(torch.device("cpu"), "CPU"))
    model = network(channels=options.channels, edge=options.edge, width=plan.width)
    images = torch.randn(4, options.channels, options.edge, options.edge)
    kept = kept_bytes(lambda: model(images), [images, *model.parameters()])
    assert 0.9 * kept < 4 * image_bytes(options, plan) <= kept


def test_images_take_as_much_memory_to_make_as_is_asked_for():
    options = CnnOptions(shape="mnist")
    plan = replace(plan_for(options, Device(torch.device("cpu"), "CPU")), train=4096, test=1)
    tracemalloc.start()
    try:
        make(options, train=plan.train, test=plan.test)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * peak < making_bytes(options, plan) <= peak


def test_every_technique_learns_and_has_its_row():
    result = run(CnnOptions(shape="mnist", seed=3, batch_size=16))
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
