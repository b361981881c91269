# SPDX-License-Identifier: Apache-2.0
"""Settings of TensorFlow: GPUs, their memory, strategy."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from gpupack.errors import Unsupported
from gpupack.process_setup.devices import Devices, SetupInvalid, Visible, visible_environment
from gpupack.process_setup.precision import precision_of

Strategy = Literal["none", "one_device", "mirrored", "multi_worker"]

STRATEGIES: Final[dict[Strategy, str]] = {
    "none": "",
    "one_device": "OneDeviceStrategy",
    "mirrored": "MirroredStrategy",
    "multi_worker": "MultiWorkerMirroredStrategy",
}

MAX_WORKERS: Final = 1024
ADDRESS: Final = r"^[A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*:[0-9]{1,5}$"

Address = Annotated[str, msgspec.Meta(pattern=ADDRESS, max_length=262)]


class TensorFlowSetup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for settings of TensorFlow.

    Attributes:
        devices: GPUs that the process sees, by UUID or index; empty: none, it computes on the CPU.
        gpu_memory_fraction: maximum part of each GPU's memory (or of the share of it) for
            TensorFlow; null: no limit of its own.
        allow_growth: allocate memory on demand, not all at once.
        strategy: how the training is distributed over GPUs and workers.
        workers: addresses (host:port) of all workers; for multi_worker.
        task_index: index of this process among the workers.
        mixed_precision: compute with bfloat16 or float16.
    """

    devices: Devices = ()
    gpu_memory_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    allow_growth: bool = True
    strategy: Strategy = "none"
    workers: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_WORKERS)] = ()
    task_index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORKERS)] = 0
    mixed_precision: bool = False


class TensorFlowSettings(msgspec.Struct, frozen=True):
    """The settings to apply to TensorFlow.

    Attributes:
        environment: variables to set before TensorFlow is imported.
        strategy: class of tf.distribute; empty: none.
        strategy_devices: the visible GPUs, as TensorFlow names them.
        memory_limit_mib: limit of each visible GPU, for tf.config.LogicalDeviceConfiguration;
            empty: no limit.
        memory_growth: whether to call tf.config.experimental.set_memory_growth. With a limit
            TensorFlow refuses that call; then the environment sets it.
        precision_policy: policy of keras.mixed_precision.
        tf_config: content of TF_CONFIG; null where there is one worker.
    """

    environment: dict[str, str]
    strategy: str
    strategy_devices: list[str]
    memory_limit_mib: list[int]
    memory_growth: bool
    precision_policy: str
    tf_config: dict[str, Any] | None


def tensorflow_settings(
    setup: TensorFlowSetup, visible: Sequence[Visible] = ()
) -> TensorFlowSettings:
    """Return the settings for a setup.

    Args:
        setup: the request.
        visible: known data of its devices, in their order; empty: none.

    Raises:
        SetupInvalid: its fields contradict each other, or the memory of a GPU is unknown.
    """
    known = visible or tuple(Visible(each) for each in setup.devices)
    precision = precision_of((each.model for each in known), mixed=setup.mixed_precision)
    limits = _memory_limits(setup, known)
    config = _tf_config(setup)
    environment = visible_environment(setup.devices)
    environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true" if setup.allow_growth else "false"
    if config is not None:
        environment["TF_CONFIG"] = msgspec.json.encode(config).decode()
    return TensorFlowSettings(
        environment=environment,
        strategy=STRATEGIES[setup.strategy],
        strategy_devices=_strategy_devices(setup),
        memory_limit_mib=limits,
        memory_growth=setup.allow_growth and bool(setup.devices) and not limits,
        precision_policy=f"mixed_{precision.dtype}" if precision.enabled else precision.dtype,
        tf_config=config,
    )


def apply_tensorflow(tf: Any, settings: TensorFlowSettings, *, collectives: str = "AUTO") -> Any:
    """Apply the settings in this process, before TensorFlow uses a GPU.

    Args:
        tf: the module tensorflow, imported after the settings' environment was set.
        settings: where they name several workers, this waits until all are connected.
        collectives: communication between workers: AUTO, RING or NCCL.

    Returns:
        The strategy; None where there is none.

    Raises:
        Unsupported: TensorFlow already uses its GPUs.
    """
    gpus = tf.config.list_physical_devices("GPU")
    try:
        for gpu, limit in zip(gpus, settings.memory_limit_mib, strict=False):
            one = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
            tf.config.set_logical_device_configuration(gpu, [one])
        for gpu in gpus if settings.memory_growth else ():
            tf.config.experimental.set_memory_growth(gpu, enable=True)
    except RuntimeError as error:
        raise Unsupported(
            f"TensorFlow uses its GPUs already ({error}); set up GPUs before anything else does"
        ) from error
    tf.keras.mixed_precision.set_global_policy(settings.precision_policy)
    if not settings.strategy:
        return None
    if settings.strategy == "MultiWorkerMirroredStrategy":
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[collectives]
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return tf.distribute.MirroredStrategy(settings.strategy_devices)


def _memory_limits(setup: TensorFlowSetup, known: Sequence[Visible]) -> list[int]:
    fraction = setup.gpu_memory_fraction
    if fraction is None or not setup.devices:
        return []
    unknown = [each.id for each in known if not each.memory_mib]
    if unknown:
        raise SetupInvalid(
            "gpu_memory_fraction",
            fraction,
            f"the memory of {unknown[0]} is not known; name GPUs by UUIDs that are known",
        )
    return [max(math.floor(each.memory_mib * fraction), 1) for each in known]


def _strategy_devices(setup: TensorFlowSetup) -> list[str]:
    count = min(len(setup.devices), 1) if setup.strategy == "one_device" else len(setup.devices)
    if setup.strategy == "none":
        return []
    return [f"/gpu:{number}" for number in range(count)] or ["/cpu:0"]


def _tf_config(setup: TensorFlowSetup) -> dict[str, Any] | None:
    if setup.strategy != "multi_worker":
        if setup.workers:
            raise SetupInvalid("workers", ",".join(setup.workers), "is for strategy multi_worker")
        return None
    if not setup.workers:
        raise SetupInvalid("workers", "", "name host:port of each worker, for multi_worker")
    if setup.task_index >= len(setup.workers):
        last = len(setup.workers) - 1
        raise SetupInvalid("task_index", setup.task_index, f"give 0 to {last}, one of workers")
    return {
        "cluster": {"worker": list(setup.workers)},
        "task": {"type": "worker", "index": setup.task_index},
    }
