# SPDX-License-Identifier: Apache-2.0
"""Checks that all replicas of all workers are one training.

gradients   summed by the strategy over all replicas, against one device's of all their images
weights     of every replica, by a checksum that all of them compare
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

IMAGES = 8
"""Of each replica, for the comparison of gradients."""


def loss_sum(model: Any, pixels: Any, labels: Any) -> Any:
    """Return the cross-entropy, summed over images."""
    logits = model(pixels, training=True)
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def gradient_error(strategy: Any, model: Any, pixels: Any, labels: Any) -> float:
    """Return how far the replicas' gradient is from one device's, relative to its length.

    Args:
        strategy: whose replicas each take their own part of the images.
        model: made in its scope.
        pixels: [replicas, IMAGES, H, W, C], the same at every worker.
        labels: [replicas, IMAGES].
    """

    def gradient(part: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = loss_sum(model, tf.gather(pixels, part), tf.gather(labels, part))
        return list(tape.gradient(loss, model.trainable_variables))

    def of_replica() -> list[Any]:
        context = tf.distribute.get_replica_context()
        mine = gradient(context.replica_id_in_sync_group)
        return list(context.all_reduce(tf.distribute.ReduceOp.SUM, mine))

    together = [
        strategy.experimental_local_results(each)[0]
        for each in tf.function(lambda: strategy.run(of_replica))()
    ]
    alone = tf.function(gradient)
    parts = [alone(tf.constant(part)) for part in range(len(labels))]
    expected = [np.sum([each.numpy() for each in of], axis=0) for of in zip(*parts, strict=True)]
    return distance([each.numpy() for each in together], expected)


def distance(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Return the length of the difference over that of what is expected; infinite: no number."""
    one, other = (np.concatenate([each.ravel() for each in of]) for of in (found, expected))
    error = float(np.linalg.norm(one - other) / np.linalg.norm(other))
    return error if np.isfinite(error) else float("inf")


def different_weights(strategy: Any, model: Any) -> int:
    """Return how many replicas of all workers have other weights than the first."""
    mine = checksums(strategy, model)

    def own_value(context: Any) -> Any:
        return tf.constant([mine[context.replica_id_in_sync_group % len(mine)]])

    values = strategy.experimental_distribute_values_from_function(own_value)
    gathered = tf.function(lambda each: strategy.gather(each, axis=0))(values).numpy()
    return int((gathered != gathered[0]).sum())


def checksums(strategy: Any, model: Any) -> list[int]:
    """Return 63 bits of a hash of each replica's weights, of the replicas of this worker."""
    replicas = [
        [value.numpy().tobytes() for value in strategy.experimental_local_results(weight.value)]
        for weight in model.trainable_variables
    ]
    digests = [hashlib.sha256(b"".join(each)).digest() for each in zip(*replicas, strict=True)]
    return [int.from_bytes(digest[:8]) >> 1 for digest in digests]
