# SPDX-License-Identifier: Apache-2.0
"""The resnet50 workload from the inside."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.resnet50 import replica_checks
from gpupack_workloads.resnet50.data_parallel import Flat, replicated
from gpupack_workloads.resnet50.memory_estimate import outputs_per_image
from gpupack_workloads.resnet50.model import PARAMETERS, Bottleneck, ResNet50, folded_convolution
from gpupack_workloads.resnet50.objective import batches, new_objective
from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.resnet50.plan import fitting_batch, plan_for
from gpupack_workloads.resnet50.reference import Start, compare, reference_start, start_of
from gpupack_workloads.resnet50.replica_checks import check_means, check_replicas, wrong_means
from gpupack_workloads.resnet50.session import measure
from gpupack_workloads.resnet50.speed import counts
from gpupack_workloads.seeds import LARGEST_SEED

CPU = Device(torch.device("cpu"), "CPU")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the gangs here are of CPUs")


def test_the_largest_seed_gives_every_rank_images_of_its_own():
    plan = replace(plan_for(ResNetOptions(), CPU), batch_size=1, pool=4, seed=LARGEST_SEED)
    batch, other = (batches(plan, CPU.torch, rank=rank)[3] for rank in range(2))
    assert not torch.equal(batch[0], other[0])


def test_the_network_has_as_many_parameters_as_published():
    assert sum(p.numel() for p in ResNet50().parameters()) == PARAMETERS == 25_557_032


@pytest.mark.parametrize("edges", [(32, 32), (36, 50)])
def test_a_folded_stem_computes_the_same_convolution(edges):
    images, weight = torch.randn(2, 3, *edges), torch.randn(64, 3, 7, 7)
    plain = functional.conv2d(images, weight, stride=2, padding=3)
    torch.testing.assert_close(folded_convolution(images, weight), plain, rtol=1e-4, atol=1e-4)


def start(losses, **gradients):
    return Start(losses, {name: torch.tensor(values) for name, values in gradients.items()})


PLAIN = start([7.0, 6.5], stem=[3.0, 4.0], head=[0.03, 0.04])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (start([7.0, 6.0], stem=[3.0, 4.0], head=[0.03, 0.04]), "the losses"),
        (start([7.0, float("nan")], stem=[3.0, 4.0], head=[0.03, 0.04]), "the losses"),
        (start([7.0, 6.5], stem=[3.0, 4.0], head=[-0.03, -0.04]), "gradient of head"),
        (start([7.0, 6.5], stem=[3.0, 4.0], head=[0.03, float("nan")]), "gradient of head"),
        (start([7.0, 6.5], stem=[3.0, 4.0]), "gradient of head"),
        (start([7.0, 6.5], stem=[2.85, 3.8], head=[0.03, 0.04]), "long"),
    ],
)
def test_first_steps_that_part_from_plain_training_are_refused(found, words):
    with pytest.raises(WrongResult, match=words):
        compare(found, PLAIN, "bf16")
    assert compare(PLAIN, PLAIN, "bf16").gradient == 0.0


PLAN = replace(plan_for(ResNetOptions(), CPU), batch_size=8)


@pytest.fixture(scope="module")
def plain():
    return reference_start(PLAN, CPU.torch, rank=0)


@no_gpu
@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (0, torch.zeros_like),
        (15, torch.zeros_like),
        (7, torch.neg),
        (7, lambda values: values.roll(1, dims=1)),
    ],
)
def test_a_fault_in_one_block_is_noticed(plain, block, fault):
    objective = new_objective(PLAN, CPU.torch)
    blocks = [module for module in objective.modules() if isinstance(module, Bottleneck)]
    blocks[block].spatial[0].register_forward_hook(lambda *call: fault(call[-1]))
    with pytest.raises(WrongResult, match="plain 32-bit training"):
        compare(start_of(objective, PLAN, CPU.torch, rank=0), plain, "bf16")


def test_the_learning_rate_goes_with_the_batch_that_ranks_agree_on():
    plan = plan_for(ResNetOptions(batch_size=1024), CPU)
    assert replace(plan, batch_size=512).learning_rate == plan.learning_rate / 2


@pytest.mark.parametrize(
    "wrong", [{"dtype": "bf16"}, {"dtype": "fp16"}, {"compile_mode": "default"}]
)
def test_what_needs_a_gpu_is_refused_without_one(wrong):
    with pytest.raises(BadArgument, match="without a GPU"):
        plan_for(ResNetOptions(**wrong), CPU)


def test_ranks_train_together_in_doubling_numbers_and_all():
    assert [counts(ranks) for ranks in (1, 2, 4, 6)] == [[], [2], [2, 4], [2, 4, 6]]


@pytest.mark.parametrize("size", [32, 50, 64])
def test_the_memory_asked_for_is_that_of_the_convolutions_outputs(size):
    network, made = ResNet50(), []
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d) and "shortcut" not in name:
            module.register_forward_hook(lambda _, __, output: made.append(output.numel()))
    network(torch.zeros(2, 3, size, size))
    assert sum(made) == 2 * outputs_per_image(size)


@no_gpu
def test_a_batch_that_cannot_fit_is_refused_before_any_work(gang):
    answers = gang(2, measure, ResNetOptions(batch_size=8192, size=1024), "auto")
    assert all(isinstance(answer, OutOfMemory) for answer in answers), answers
    assert "--batch-size or --size" in str(answers[0])


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
            for _ in range(2):
                module.zero_grad()
                module(images).square().mean().backward()
                flat.synchronise()
        return [parameter.grad.numpy() for parameter in module.parameters()]


@no_gpu
def test_flat_buffers_give_the_gradients_of_ddp(gang):
    by_ddp, by_flat = (gang(2, mean_gradients, coupling) for coupling in ("ddp", "flat"))
    for expected, found in zip(by_ddp[0], by_flat[1], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("gib", "size", "batch"),
    [
        (141, 224, 1024),
        (80, 224, 512),
        (24, 224, 128),
        (1, 224, 16),
        (141, 448, 256),
        (80, 32, 1024),
    ],
)
def test_a_gpu_gets_the_batch_whose_reference_its_memory_holds(gib, size, batch):
    assert fitting_batch(gib * 2**30, size) == batch


class Sum(Flat):
    """Forgets to divide."""

    def synchronise(self):
        super().synchronise()
        for bucket in self._buckets:
            bucket.flat *= self._ranks


def exchange(kind):
    with group("auto", require_gpu=False) as rank:
        replica_checks.Flat = kind
        module = torch.nn.Sequential(torch.nn.Linear(8, 512), torch.nn.Linear(512, 600))
        check_means(wrong_means(module, rank, bucket_mib=1), rank)
        return [parameter.grad for parameter in module.parameters()]


@no_gpu
def test_gradients_of_a_known_mean_are_exchanged_before_any_training(gang):
    assert gang(3, exchange, Flat) == [[None] * 4] * 3


@no_gpu
def test_a_sum_in_place_of_a_mean_is_noticed(gang):
    answers = gang(2, exchange, Sum)
    assert all(isinstance(answer, WrongResult) for answer in answers), answers


def half_a_pass(_):
    with group("auto", require_gpu=False) as rank:
        module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        flat = Flat(module, rank, bucket_mib=1)
        module[0](torch.ones(1, 2)).sum().backward()
        flat.synchronise()


@no_gpu
def test_a_gradient_that_never_comes_is_an_error_and_not_a_stale_mean(gang):
    assert all(isinstance(answer, RuntimeError) for answer in gang(2, half_a_pass, None))


@no_gpu
@pytest.mark.parametrize("coupling", ["flat", "ddp"])
def test_two_ranks_learn_and_report_their_scaling(gang, coupling):
    options = ResNetOptions(batch_size=2, size=64, steps=1, coupling=coupling)
    results = gang(2, measure, options, "auto")
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
