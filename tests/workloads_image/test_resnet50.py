# SPDX-License-Identifier: Apache-2.0
"""The resnet50 workload from the inside."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.resnet50.coupling import Flat, replicated
from gpupack_workloads.resnet50.model import PARAMETERS, ResNet50, folded_convolution
from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.resnet50.plan import plan_for
from gpupack_workloads.resnet50.rank import check_replicas, measure
from gpupack_workloads.resnet50.reference import compare
from gpupack_workloads.resnet50.speed import counts

CPU = Device(torch.device("cpu"), "CPU")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the gangs here are of CPUs")


def test_the_network_has_as_many_parameters_as_published():
    assert sum(p.numel() for p in ResNet50().parameters()) == PARAMETERS == 25_557_032


@pytest.mark.parametrize("edges", [(32, 32), (36, 50)])
def test_a_folded_stem_computes_the_same_convolution(edges):
    images, weight = torch.randn(2, 3, *edges), torch.randn(64, 3, 7, 7)
    plain = functional.conv2d(images, weight, stride=2, padding=3)
    torch.testing.assert_close(folded_convolution(images, weight), plain, rtol=1e-4, atol=1e-4)


def test_losses_that_part_from_plain_training_are_refused():
    with pytest.raises(WrongResult, match="away from"):
        compare([7.0, 6.0], [7.0, 6.5], "bf16")
    with pytest.raises(WrongResult):
        compare([7.0, float("nan")], [7.0, 6.5], "bf16")


@pytest.mark.parametrize(
    "wrong", [{"dtype": "bf16"}, {"dtype": "fp16"}, {"compile_mode": "default"}]
)
def test_what_needs_a_gpu_is_refused_without_one(wrong):
    with pytest.raises(BadArgument, match="without a GPU"):
        plan_for(ResNetOptions(**wrong), CPU)


def test_ranks_train_together_in_doubling_numbers_and_all():
    assert [counts(ranks) for ranks in (1, 2, 4, 6)] == [[], [2], [2, 4], [2, 4, 6]]


def mean_gradients(coupling):
    with group("auto", require_gpu=False) as rank:
        torch.manual_seed(rank.index)
        # Enough for two buckets of a MiB, in the memory order of images, too.
        module = torch.nn.Sequential(torch.nn.Conv2d(8, 512, 8), torch.nn.Flatten())
        module.append(torch.nn.Linear(512, 600)).to(memory_format=torch.channels_last)
        images = torch.randn(4, 8, 8, 8)
        if coupling == "ddp":
            replica = replicated(module, rank, bucket_mib=1)
            replica(images).square().mean().backward()
        else:
            flat = Flat(module, rank, bucket_mib=1)
            module(images).square().mean().backward()
            flat.synchronise()
        return [parameter.grad.numpy() for parameter in module.parameters()]


@no_gpu
def test_flat_buffers_give_the_gradients_of_ddp(gang):
    by_ddp, by_flat = (gang(2, mean_gradients, coupling) for coupling in ("ddp", "flat"))
    for expected, found in zip(by_ddp[0], by_flat[1], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@no_gpu
def test_two_ranks_learn_and_report_their_scaling(gang):
    results = gang(2, measure, ResNetOptions(batch_size=2, steps=1), "auto")
    assert [result.verified for result in results] == [True, True]
    metrics = results[0].metrics
    assert metrics["ranks"] == 2
    assert metrics["scaling_ratio"] == pytest.approx(
        metrics["images_per_s"] / metrics["one_gpu_images_per_s"], rel=0.01
    )


def drift(_):
    with group("auto", require_gpu=False) as rank:
        module = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(module.weight, 1.0)
        torch.nn.init.constant_(module.bias, 1.0 + 1e-7 * rank.index)
        check_replicas(module, rank)


@no_gpu
def test_replicas_that_differ_by_one_bit_are_noticed(gang):
    assert all(isinstance(answer, WrongResult) for answer in gang(2, drift, None))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp32"])
def test_every_format_learns_on_a_gpu(alone, dtype):
    options = ResNetOptions(batch_size=32, size=64, steps=30, dtype=dtype, compile_mode="off")
    result = measure(options, "auto")
    assert result.verified
    assert result.metrics["peak_memory_mib"] > 0
