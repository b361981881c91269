# SPDX-License-Identifier: Apache-2.0
"""Loads images for a training by epochs: some are held out, the others are shuffled.

All images fit into memory many times over, so a batch is one gathering of bytes, made in the
training's own process: workers of a DataLoader would pass their batches through /dev/shm, of which
a container has 64 MiB. They become numbers on the device, which is sent a quarter of the bytes so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.train_cnn import synthetic
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.options import SYNTHETIC
from gpupack_workloads.training.steps import Batch

HELD_OUT = 10
"""One of so many training images is used for validation."""
BYTE = 255
# Mean and standard deviation of the training images' channels, from 0 to 1, as usually published:
# MNIST's in PyTorch's own example (github.com/pytorch/examples, mnist/main.py), CIFAR-10's in
# github.com/KellerJordan/cifar10-airbench.
PUBLISHED = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    SYNTHETIC: (
        (synthetic.GREY / BYTE,),
        ((synthetic.CONTRAST**2 + synthetic.NOISE**2) ** 0.5 / BYTE,),
    ),
}


class ImageSet(Dataset[Batch]):
    """Images as bytes [N, C, H, W] with their classes [N]; many are gathered at once."""

    def __init__(self, images: Images) -> None:
        self._pixels = torch.from_numpy(images.pixels)
        self._labels = torch.from_numpy(images.labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Batch:
        return self._pixels[index], self._labels[index]

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return a batch; torch's loader calls this method if it exists."""
        chosen = torch.tensor(indices)
        return self._pixels[chosen], self._labels[chosen]


@dataclass(frozen=True)
class Normalisation:
    """Bytes to numbers of mean 0 and deviation 1, channel by channel, on the device."""

    mean: torch.Tensor
    deviation: torch.Tensor
    device: torch.device

    def __call__(self, batch: Batch) -> Batch:
        """Return a batch on the device, its pixels in 32 bits."""
        pixels, labels = (part.to(self.device, non_blocking=True) for part in batch)
        return (pixels.float() / BYTE - self.mean) / self.deviation, labels


def normalisation(dataset: str, device: torch.device) -> Normalisation:
    """Return a data set's own."""
    mean, deviation = (
        torch.tensor(channels, device=device).view(1, -1, 1, 1) for channels in PUBLISHED[dataset]
    )
    return Normalisation(mean, deviation, device)


def hold_out(images: Images, *, seed: int) -> tuple[Images, Images]:
    """Return images to learn from and others to judge epochs by; one seed gives one division."""
    order = np.random.default_rng(seed).permutation(len(images.labels))
    count = max(1, len(order) // HELD_OUT)
    return chosen(images, order[count:]), chosen(images, order[:count])


def chosen(images: Images, indices: npt.NDArray[np.int64]) -> Images:
    """Return some of the images."""
    return Images(pixels=images.pixels[indices], labels=images.labels[indices])


class Shuffled:
    """Batches of one rank, in a new order each epoch; each image goes to one rank.

    torch's sampler repeats a few, so that all ranks have as many batches.
    """

    def __init__(self, images: Images, *, batch_size: int, seed: int, rank: Rank) -> None:
        images_set = ImageSet(images)
        self._sampler: DistributedSampler[Batch] = DistributedSampler(
            images_set,
            num_replicas=rank.ranks,
            rank=rank.index,
            seed=seed,
        )
        self._loader = DataLoader(
            images_set,
            batch_size=batch_size,
            sampler=self._sampler,
            collate_fn=as_it_is,
            pin_memory=not rank.device.simulated,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Return an epoch's batches."""
        self._sampler.set_epoch(number)
        return iter(self._loader)


def part_of(images: Images, *, batch_size: int, rank: Rank) -> Iterator[Batch]:
    """Return a rank's share of images in batches; no image is in two shares."""
    mine = ImageSet(chosen(images, np.arange(rank.index, len(images.labels), rank.ranks)))
    for start in range(0, len(mine), batch_size):
        yield mine.__getitems__(list(range(start, min(start + batch_size, len(mine)))))


def as_it_is(batch: Any) -> Any:
    """Leave a batch that was gathered at once; torch's loader hands over a list else."""
    return batch
