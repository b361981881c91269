# SPDX-License-Identifier: Apache-2.0
"""Trainings by epochs, on real digits and made-up images."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.results import Result
from gpupack_workloads.train_cnn.epochs import Course, Epoch, Judged
from gpupack_workloads.train_cnn.epochs_session import chance_bound, check, measure
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.loading import Shuffled, hold_out, normalisation, part_of
from gpupack_workloads.train_cnn.optimizers import KINDS, new_optimizer, usual_rate
from gpupack_workloads.train_cnn.options import OPTIMIZERS, CnnOptions
from gpupack_workloads.train_cnn.synthetic import make
from gpupack_workloads.training.curves import distance

CPU = Device(torch.device("cpu"), "CPU")
MADE_UP = CnnOptions(shape="mnist", epochs=2, batch_size=64, seed=3)
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="torch has touched a GPU")


def rank(index, ranks):
    return Rank(index=index, ranks=ranks, local_index=index, device=CPU, backend="gloo")


def numbered(count):
    """Images of one pixel each, with their index as the class."""
    return Images(np.zeros((count, 1, 1, 1), np.uint8), np.arange(count))


def orders(images, epoch, *, ranks, batch_size=4):
    """Which images each rank sees in an epoch, in order."""
    return [
        torch.cat([labels for _, labels in shuffled(images, index, ranks, batch_size).epoch(epoch)])
        for index in range(ranks)
    ]


def shuffled(images, index, ranks, batch_size):
    return Shuffled(images, batch_size=batch_size, seed=1, rank=rank(index, ranks))


def test_a_training_on_real_digits_finds_nine_of_ten_and_says_so_epoch_by_epoch(alone, tmp_path):
    pytest.importorskip("sklearn")
    from gpupack_workloads.train_cnn import digits  # noqa: PLC0415  takes sklearn

    digits.write(tmp_path)
    options = CnnOptions(dataset="mnist", data=tmp_path, epochs=6, batch_size=32)
    result = measure(options, "auto")
    assert result.verified
    assert [row["epoch"] for row in result.rows] == [1, 2, 3, 4, 5, 6]
    assert result.rows[-1]["validation_accuracy"] > 0.9 > result.rows[0]["validation_accuracy"]
    assert result.metrics["test_accuracy"] > 0.9 > result.metrics["test_accuracy_bound"]
    images = [result.metrics[f"{part}_images"] for part in ("train", "validation", "test")]
    assert images == [1294, 143, 360]


def losses(options):
    result = measure(options, "auto")
    return [row["loss"] for row in result.rows], result.metrics


@no_gpu
def test_two_ranks_take_the_steps_that_one_takes_with_twice_the_batch(gang):
    ((one, alone_metrics),) = gang(1, losses, MADE_UP)
    (first, metrics), (second, _) = gang(2, losses, replace(MADE_UP, batch_size=32))
    assert first == second
    assert distance(first, one) < 1e-3
    assert metrics["learning_rate"] == alone_metrics["learning_rate"]
    assert (metrics["ranks"], metrics["global_batch_size"]) == (2, 64)


def other_images():
    return measure(replace(MADE_UP, seed=int(os.environ["RANK"])), "auto")


@no_gpu
def test_ranks_with_other_images_fail_before_they_train(gang):
    errors = gang(2, other_images)
    assert [type(error) for error in errors] == [BadArgument] * 2
    assert "other workers have read other images" in str(errors[0])


@pytest.mark.parametrize(
    ("learning_rate", "message"),
    [(1e-9, "nothing was learnt: the loss went from"), (1000, "--learning-rate than 1000")],
)
def test_a_training_that_learns_nothing_is_refused(alone, learning_rate, message):
    options = replace(MADE_UP, epochs=1, optimizer="sgd", learning_rate=learning_rate)
    with pytest.raises(WrongResult, match=message) as caught:
        measure(options, "auto")
    assert caught.value.result is None or not caught.value.result.verified


def course(*losses, right):
    """A training on 1,000 test images, whose loss was 2.5 before."""
    untrained = Judged(loss=2.5, right=100, images=1000)
    epochs = [Epoch(loss=loss, seconds=1.0, validation=untrained) for loss in losses]
    return Course(
        untrained=untrained, epochs=epochs, test=Judged(loss=1.0, right=right, images=1000)
    )


RESULT = Result(
    workload="train-cnn",
    headline="",
    verified=True,
    simulated=True,
    metrics={"learning_rate": 0.1},
)


def test_a_loss_that_leaps_in_the_last_epoch_is_no_wrong_result():
    check(course(0.5, 2.6, right=600), 0.2, RESULT)


@pytest.mark.parametrize("found", [course(2.6, 2.5, right=600), course(0.5, right=200)])
def test_a_loss_that_never_fell_and_an_accuracy_of_guesses_are_wrong(found):
    with pytest.raises(WrongResult, match="nothing was learnt"):
        check(found, 0.2, RESULT)


def test_a_batch_that_does_not_fit_is_refused_before_any_work(alone):
    with pytest.raises(OutOfMemory, match="set a smaller --batch-size"):
        measure(replace(MADE_UP, batch_size=2**40), "auto")


def test_every_epoch_has_another_order_and_one_seed_gives_the_same_again():
    images = numbered(23)
    (first,), (again,), (second,) = (orders(images, n, ranks=1) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert sorted(second.tolist()) == list(range(23))


def test_ranks_share_the_images_of_an_epoch():
    ours = orders(numbered(24), 1, ranks=3)
    assert [len(part) for part in ours] == [8, 8, 8]
    assert sorted(torch.cat(ours).tolist()) == list(range(24))


def test_each_image_is_judged_by_one_rank():
    shares = [
        [n for _, labels in part_of(numbered(11), batch_size=2, rank=rank(i, 3)) for n in labels]
        for i in range(3)
    ]
    assert sorted(int(n) for share in shares for n in share) == list(range(11))


def test_no_image_is_both_learnt_from_and_held_out():
    learnt_from, held_out = hold_out(numbered(50), seed=2)
    assert len(held_out.labels) == 5
    assert sorted([*learnt_from.labels, *held_out.labels]) == list(range(50))


def test_pixels_come_out_with_mean_0_and_deviation_1():
    images = make(CnnOptions(), train=512, test=1).train
    batch = torch.from_numpy(images.pixels), torch.from_numpy(images.labels)
    pixels, _ = normalisation("synthetic", torch.device("cpu"))(batch)
    assert abs(float(pixels.mean())) < 0.1
    assert 0.8 < float(pixels.std()) < 1.2


def test_guessing_stays_below_the_bound():
    """A million trials of always the most frequent class: about one may exceed it."""
    labels = np.repeat(np.arange(10), [190] + [90] * 9)
    right = np.random.default_rng(1).binomial(len(labels), 0.19, 1_000_000) / len(labels)
    assert chance_bound(labels) == pytest.approx(0.19 + 0.0831, abs=1e-4)
    assert right.max() <= chance_bound(labels)


def test_too_few_images_to_tell_learning_from_guessing_are_refused():
    with pytest.raises(
        BadArgument, match="8 test images, 12% of them of one class, are not enough"
    ):
        chance_bound(np.arange(8))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_a_step_towards_less(name):
    place = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = new_optimizer(name, [place], learning_rate=usual_rate(name, batch_size=64))
    (place**2).sum().backward()
    optimizer.step()
    assert 0 < place.item() < 1
    assert optimizer.defaults["lr"] == KINDS[name].rate


def test_rates_follow_the_batch_linearly_or_by_the_square_root():
    assert usual_rate("sgd", batch_size=128) == 2 * usual_rate("sgd", batch_size=64)
    assert usual_rate("sgd", batch_size=2**20) == 2 * usual_rate("sgd", batch_size=64)
    assert usual_rate("adam", batch_size=256) == 2 * usual_rate("adam", batch_size=64)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_learns_made_up_images(alone):
    result = measure(CnnOptions(shape="mnist", epochs=3, require_gpu=True), "auto")
    assert (result.verified, result.simulated) == (True, False)
    assert result.metrics["test_accuracy"] > 0.9
