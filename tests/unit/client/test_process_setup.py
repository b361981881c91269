# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack.process_setup import (
    Ddp,
    PyTorchSetup,
    SetupInvalid,
    TensorFlowSetup,
    Visible,
    precision_of,
    pytorch_settings,
    tensorflow_settings,
)

TWO = ("GPU-aa", "GPU-bb")
H100 = tuple(Visible(each, "NVIDIA H100 80GB HBM3", 80_000) for each in TWO)
WORKERS = ("a:12345", "b:12345")


def test_a_process_sees_its_gpus_by_uuid_and_no_others():
    settings = tensorflow_settings(TensorFlowSetup(TWO))
    assert settings.environment["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-bb"
    assert "CUDA_DEVICE_ORDER" not in settings.environment


def test_indices_count_as_nvidia_smi_does():
    environment = pytorch_settings(PyTorchSetup(("1", "3"))).environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_process_without_gpus_sees_none():
    assert tensorflow_settings(TensorFlowSetup()).environment["CUDA_VISIBLE_DEVICES"] == ""
    settings = pytorch_settings(PyTorchSetup())
    assert (settings.environment, settings.device) == ({"CUDA_VISIBLE_DEVICES": ""}, "cpu")


@pytest.mark.parametrize("devices", [("GPU-aa", "GPU-aa"), ("GPU-aa", "0")])
def test_devices_are_unique_and_of_one_kind(devices):
    with pytest.raises(SetupInvalid, match="devices is") as raised:
        pytorch_settings(PyTorchSetup(devices))
    assert (raised.value.field, bool(raised.value.fix)) == ("devices", True)


def test_tensorflow_gets_a_memory_limit_for_each_gpu():
    settings = tensorflow_settings(TensorFlowSetup(TWO, gpu_memory_fraction=0.5), H100)
    assert settings.memory_limit_mib == [40_000, 40_000]
    # TensorFlow refuses growth together with a limit in the process.
    assert not settings.memory_growth
    assert settings.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_tensorflow_grows_on_demand_without_a_limit():
    settings = tensorflow_settings(TensorFlowSetup(TWO))
    assert (settings.memory_growth, settings.memory_limit_mib) == (True, [])
    assert not tensorflow_settings(TensorFlowSetup(TWO, allow_growth=False)).memory_growth


def test_a_fraction_of_unknown_memory_is_refused():
    with pytest.raises(SetupInvalid, match="the memory of GPU-aa is not known"):
        tensorflow_settings(TensorFlowSetup(TWO, gpu_memory_fraction=0.5))


@pytest.mark.parametrize(
    ("strategy", "named", "devices"),
    [
        ("none", "", []),
        ("one_device", "OneDeviceStrategy", ["/gpu:0"]),
        ("mirrored", "MirroredStrategy", ["/gpu:0", "/gpu:1"]),
    ],
)
def test_strategies_have_tensorflows_names(strategy, named, devices):
    settings = tensorflow_settings(TensorFlowSetup(TWO, strategy=strategy))
    assert (settings.strategy, settings.strategy_devices) == (named, devices)


def test_a_mirrored_strategy_without_gpus_uses_the_cpu():
    settings = tensorflow_settings(TensorFlowSetup(strategy="mirrored"))
    assert settings.strategy_devices == ["/cpu:0"]


def test_several_workers_get_tf_config():
    setup = TensorFlowSetup(TWO, strategy="multi_worker", workers=WORKERS, task_index=1)
    settings = tensorflow_settings(setup)
    written = json.loads(settings.environment["TF_CONFIG"])
    assert written == settings.tf_config
    assert written == {
        "cluster": {"worker": list(WORKERS)},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strategy": "multi_worker"}, "workers"),
        ({"strategy": "multi_worker", "workers": WORKERS, "task_index": 2}, "task_index"),
        ({"strategy": "mirrored", "workers": WORKERS}, "workers"),
    ],
)
def test_a_contradicting_setup_of_tensorflow_is_refused(changes, field):
    with pytest.raises(SetupInvalid) as raised:
        tensorflow_settings(TensorFlowSetup(TWO, **changes))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("models", "dtype", "scaled"),
    [
        (["NVIDIA H100 80GB HBM3"], "bfloat16", False),
        (["NVIDIA A100-SXM4-80GB"], "bfloat16", False),
        (["Tesla V100-SXM2-16GB"], "float16", True),
        (["Tesla T4", "NVIDIA H100"], "float16", True),
        ([""], "float16", True),
        ([], "bfloat16", False),
    ],
)
def test_mixed_precision_is_bfloat16_where_all_gpus_support_it(models, dtype, scaled):
    found = precision_of(models, mixed=True)
    assert (found.enabled, found.dtype, found.grad_scaler) == (True, dtype, scaled)
    assert precision_of(models, mixed=False).dtype == "float32"


def test_the_precision_policy_has_keras_names():
    mixed = TensorFlowSetup(TWO, mixed_precision=True)
    assert tensorflow_settings(mixed, H100).precision_policy == "mixed_bfloat16"
    assert tensorflow_settings(TensorFlowSetup(TWO), H100).precision_policy == "float32"


def test_a_rank_gets_one_gpu_and_the_process_group():
    setup = PyTorchSetup(TWO, world_size=4, rank=3, master_addr="a")
    settings = pytorch_settings(setup, H100)
    assert settings.device == "cuda:1"
    assert settings.environment == {
        "CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "4",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    group = settings.process_group
    assert (group.backend, group.init_method, group.world_size, group.rank) == (
        "nccl",
        "env://",
        4,
        3,
    )
    assert settings.ddp.device_ids == [1]


def test_one_process_needs_no_group():
    settings = pytorch_settings(PyTorchSetup(("GPU-aa",)))
    assert (settings.process_group, settings.ddp, settings.device) == (None, None, "cuda:0")


def test_ranks_without_gpus_use_gloo():
    settings = pytorch_settings(PyTorchSetup(world_size=2, rank=1))
    assert (settings.process_group.backend, settings.ddp.device_ids) == ("gloo", None)


def test_ddp_gets_the_given_options():
    asked = Ddp(find_unused_parameters=True, static_graph=True, bucket_cap_mb=50)
    found = pytorch_settings(PyTorchSetup(TWO, ddp=asked)).ddp
    assert (found.find_unused_parameters, found.static_graph, found.bucket_cap_mb) == (
        True,
        True,
        50,
    )


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (PyTorchSetup(TWO, world_size=2, rank=2), "rank"),
        (PyTorchSetup(TWO, world_size=4, local_rank=2), "local_rank"),
        (PyTorchSetup(world_size=2, backend="nccl"), "backend"),
    ],
)
def test_a_contradicting_setup_of_pytorch_is_refused(setup, field):
    with pytest.raises(SetupInvalid) as raised:
        pytorch_settings(setup)
    assert raised.value.field == field


@pytest.mark.parametrize(("asked", "fraction"), [(None, 0.25), (0.5, 0.125)])
def test_a_shares_memory_fraction_is_of_the_whole_gpu(asked, fraction):
    share = Visible("GPU-aa", "NVIDIA H100", memory_mib=20_000, total_mib=80_000)
    setup = PyTorchSetup(("GPU-aa",), gpu_memory_fraction=asked)
    assert pytorch_settings(setup, [share]).memory_fraction == fraction
