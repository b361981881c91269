# SPDX-License-Identifier: Apache-2.0
"""Replicas that are not one training are found out. Two of them, on parts of one CPU."""

import numpy as np
import pytest
import tensorflow as tf

from gpupack_workloads.tensorflow.network import network
from gpupack_workloads.tensorflow.outcome import GRADIENT_BOUND
from gpupack_workloads.tensorflow.replicas import (
    IMAGES,
    checksums,
    different_weights,
    distance,
    gradient_error,
)
from gpupack_workloads.tensorflow.session import first_line


@pytest.fixture(scope="module")
def strategy():
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, parts)
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


@pytest.fixture
def model(strategy):
    with strategy.scope():
        return network(channels=1, edge=8, width=2)


@pytest.fixture
def batch():
    chance = np.random.default_rng(0)
    pixels = chance.standard_normal((2, IMAGES, 8, 8, 1)).astype(np.float32)
    return tf.constant(pixels), tf.constant(chance.integers(0, 10, (2, IMAGES)).astype(np.int32))


def spoil(strategy, model):
    """Change the second replica's first weight alone."""
    weight = strategy.experimental_local_results(model.trainable_variables[0].value)[1]
    weight.assign(weight + 1)


def test_replicas_of_one_training_have_one_gradient_and_the_same_weights(strategy, model, batch):
    assert gradient_error(strategy, model, *batch) <= GRADIENT_BOUND
    assert different_weights(strategy, model) == 0
    assert len(set(checksums(strategy, model))) == 1


def test_a_replica_with_a_weight_of_its_own_is_found_out(strategy, model, batch):
    spoil(strategy, model)
    assert different_weights(strategy, model) == 1
    assert len(set(checksums(strategy, model))) == 2
    assert gradient_error(strategy, model, *batch) > GRADIENT_BOUND


def test_a_distance_that_is_no_number_is_infinite():
    assert distance([np.array([3.0])], [np.array([2.0])]) == 0.5
    assert distance([np.array([np.nan])], [np.array([2.0])]) == np.inf


def test_of_an_error_the_first_line_without_the_graphs_node_is_shown():
    error = ValueError("{{function_node __wrapped__X}} gone: task 1\nmore of it")
    assert first_line(error) == "gone: task 1"
