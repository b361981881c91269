# SPDX-License-Identifier: Apache-2.0
"""One training over all replicas of all workers: each learns from its part of every epoch's images.

It is a custom loop, since Keras 3's `fit` does not take the batches of several workers.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gpupack_workloads.tensorflow.network import network
from gpupack_workloads.tensorflow.options import Plan
from gpupack_workloads.tensorflow.outcome import Epoch
from gpupack_workloads.tensorflow.replicas import loss_sum
from gpupack_workloads.train_cnn.images import Images

logger = logging.getLogger(__name__)

LEARNING_RATE = 3e-3
JUDGED = 256
"""Images per batch where nothing is kept for a gradient."""


class Training:
    """A network and its optimizer on every replica of a strategy."""

    def __init__(self, strategy: Any, plan: Plan, *, channels: int, edge: int) -> None:
        self.strategy, self.plan = strategy, plan
        keras.utils.set_random_seed(plan.seed % 2**32)
        with strategy.scope():
            self.model = network(channels=channels, edge=edge, width=plan.width)
            self.optimizer = keras.optimizers.Adam(LEARNING_RATE)
            self.optimizer.build(self.model.trainable_variables)
        self._step = tf.function(
            lambda pixels, labels: strategy.run(self._on_replica, (pixels, labels))
        )

    @property
    def global_batch(self) -> int:
        """Images of one step."""
        return int(self.plan.batch_size * self.strategy.num_replicas_in_sync)

    def epochs(self, images: Images) -> Iterator[Epoch]:
        """Train, one epoch after the other."""
        chance = np.random.default_rng(self.plan.seed)
        for number in range(self.plan.epochs):
            epoch = self._epoch(images, chance.permutation(len(images.labels)))
            logger.info("epoch %d: loss %.4f, %.1f s", number, epoch.loss, epoch.seconds)
            yield epoch

    def accuracy(self, images: Images) -> float:
        """Return the share of images whose class is found, by this worker's first replica."""
        forward = tf.function(lambda pixels: self.model(pixels, training=False))
        right = 0
        for start in range(0, len(images.labels), JUDGED):
            part = slice(start, start + JUDGED)
            logits = forward(floats(images.pixels[part])).numpy()
            right += int((logits.argmax(axis=1) == images.labels[part]).sum())
        return right / len(images.labels)

    def _epoch(self, images: Images, order: np.ndarray) -> Epoch:
        steps = len(order) // self.global_batch
        batches = self._batches(images, order[: steps * self.global_batch])
        start = time.perf_counter()
        total = 0.0
        for pixels, labels in batches:
            losses = self._step(pixels, labels)
            total += self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        loss = float(total)
        seconds = time.perf_counter() - start
        return Epoch(loss=loss / steps, seconds=seconds, images=steps * self.global_batch)

    def _batches(self, images: Images, order: np.ndarray) -> Any:
        """Yield this worker's batches; every worker has all images, in the same order."""

        def of_worker(context: Any) -> Any:
            mine = order[context.input_pipeline_id :: context.num_input_pipelines]
            parts = tf.data.Dataset.from_tensor_slices(
                (images.pixels[mine], images.labels[mine].astype(np.int32))
            ).batch(self.plan.batch_size, drop_remainder=True)
            return parts.map(lambda pixels, labels: (as_input(pixels), labels)).prefetch(2)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def _on_replica(self, pixels: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_sum(self.model, pixels, labels) / self.global_batch
        gradients = tape.gradient(loss, self.model.trainable_variables)
        # Keras's optimizer sums the gradients over the replicas.
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss


def floats(pixels: np.ndarray) -> Any:
    """Return pixels [N, C, H, W] of 0 to 255 as Keras has them: [N, H, W, C] from -1 to 1."""
    return as_input(tf.constant(pixels))


def as_input(pixels: Any) -> Any:
    """Return the same of a tensor."""
    return tf.cast(tf.transpose(pixels, (0, 2, 3, 1)), tf.float32) / 127.5 - 1
