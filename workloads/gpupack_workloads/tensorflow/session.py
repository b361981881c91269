# SPDX-License-Identifier: Apache-2.0
"""Runs one worker's part, and reports.

Imported in the process that computes alone, when its environment is set: it imports TensorFlow.
"""

import logging
import os
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from gpupack.process_setup import TensorFlowSettings, apply_tensorflow
from gpupack_workloads.errors import (
    NoSuchDevice,
    OutOfMemory,
    PeersMissing,
    WorkloadError,
    WrongResult,
)
from gpupack_workloads.results import Result, Scalar
from gpupack_workloads.settings import usable_cpus
from gpupack_workloads.tensorflow.options import TensorFlowOptions, plan_for
from gpupack_workloads.tensorflow.outcome import Found, summarise
from gpupack_workloads.tensorflow.replicas import IMAGES, different_weights, gradient_error
from gpupack_workloads.tensorflow.setup import Setup
from gpupack_workloads.tensorflow.training import Training, floats
from gpupack_workloads.train_cnn import synthetic
from gpupack_workloads.train_cnn.images import Split
from gpupack_workloads.train_cnn.options import CnnOptions

logger = logging.getLogger(__name__)

MAX_CPUS = 8
"""Replicas of a worker without GPUs."""
MIB = 2**20
GRAPH_NODE = re.compile(r"\{\{[^}]*\}\}")

LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)
"""What a collective ends with at the others, when a worker has ended."""


def measure(options: TensorFlowOptions, setup: Setup, met: Callable[[], None]) -> Result:
    """Train over all workers, and check.

    Args:
        options: options of the command line.
        setup: what is applied to this process; its environment is set.
        met: called when all workers are there.

    Raises:
        NoSuchDevice: a GPU is required and there is none.
        OutOfMemory: the batch does not fit into what TensorFlow may take.
        PeersMissing: another worker has ended.
        WrongResult: replicas differ, or nothing is learnt.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if options.require_gpu and not gpus:
        raise NoSuchDevice("a GPU is required and TensorFlow sees none in this container")
    if not gpus:
        logger.warning("no GPU: computing on the CPU at a small size; times say nothing about one")
    tf.config.threading.set_intra_op_parallelism_threads(usable_cpus(Path("/sys/fs/cgroup")))
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)
    try:
        settings = setup.settings(gpus) if gpus else _on_cpus(setup)
        strategy = apply_tensorflow(tf, settings, collectives=setup.collectives)
        met()
        return _trained(options, setup, settings, strategy)
    except tf.errors.ResourceExhaustedError as error:
        raise OutOfMemory(f"the batch does not fit: {first_line(error)}; try a smaller") from error
    except LOST as error:
        if setup.workers == 1:
            raise WorkloadError(first_line(error)) from error
        raise PeersMissing(f"another worker has ended: {first_line(error)}") from error


def _on_cpus(setup: Setup) -> TensorFlowSettings:
    """Return settings in which a worker that is alone has a replica for each simulated GPU.

    TensorFlow lets workers of a gang have one CPU each.
    """
    settings = setup.settings(0)
    if setup.workers > 1 or setup.given <= 1:
        return settings
    (cpu,) = tf.config.list_physical_devices("CPU")
    count = min(setup.given, MAX_CPUS)
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(cpu, parts)
    devices = [f"/cpu:{index}" for index in range(count)]
    return msgspec.structs.replace(settings, strategy_devices=devices)


def _trained(
    options: TensorFlowOptions, setup: Setup, settings: TensorFlowSettings, strategy: Any
) -> Result:
    gpus = tf.config.list_logical_devices("GPU")
    plan = plan_for(options, simulated=not gpus)
    images = CnnOptions(shape=plan.shape, seed=plan.seed)
    replicas = strategy.num_replicas_in_sync
    split = synthetic.make(
        images, train=max(plan.train, plan.batch_size * replicas, IMAGES * replicas), test=plan.test
    )
    training = Training(strategy, plan, channels=images.channels, edge=images.edge)
    logger.info("worker %d of %d, %d replicas", setup.index, setup.workers, replicas)
    found = Found(
        gradient_error=_first_gradient_error(training, split, replicas),
        epochs=list(training.epochs(split.train)),
        accuracy=training.accuracy(split.test),
        different_weights=different_weights(strategy, training.model),
        peak_mib=_peak_mib(gpus),
    )
    faults = found.faults(setup.memory_limit_mib if gpus else 0)
    about = _about(setup, gpus) | {"strategy": settings.strategy, "replicas": replicas}
    result = summarise(found, about, simulated=not gpus, verified=not faults)
    if faults:
        raise WrongResult("; ".join(faults), result)
    return result


def _first_gradient_error(training: Training, split: Split, replicas: int) -> float:
    count = replicas * IMAGES
    pixels = floats(split.train.pixels[:count])
    labels = tf.constant(split.train.labels[:count].astype(np.int32))
    return gradient_error(
        training.strategy,
        training.model,
        tf.reshape(pixels, (replicas, IMAGES, *pixels.shape[1:])),
        tf.reshape(labels, (replicas, IMAGES)),
    )


def _peak_mib(gpus: Sequence[Any]) -> int | None:
    peaks = [
        tf.config.experimental.get_memory_info(f"GPU:{index}")["peak"] for index in range(len(gpus))
    ]
    return max(peaks) // MIB if peaks else None


def _about(setup: Setup, gpus: Sequence[Any]) -> dict[str, Scalar]:
    """Return workers, memory and versions, as metrics."""
    physical = tf.config.list_physical_devices("GPU")
    names = [
        tf.config.experimental.get_device_details(each).get("device_name", "GPU")
        for each in physical
    ]
    return {
        "workers": setup.workers,
        "worker": setup.index,
        "memory_growth": setup.requested.allow_growth,
        "memory_limit_mib": setup.memory_limit_mib,
        "device": names[0] if gpus else f"CPU {platform.machine()}",
        "devices": os.environ.get("GPUPACK_DEVICES", ""),
        "tensorflow_version": tf.__version__,
        "cuda_version": str(tf.sysconfig.get_build_info().get("cuda_version", "none")),
    }


def first_line(error: Exception) -> str:
    """Return what TensorFlow says, without the graph's nodes that follow."""
    return GRAPH_NODE.sub("", str(error)).strip().partition("\n")[0][:300]
