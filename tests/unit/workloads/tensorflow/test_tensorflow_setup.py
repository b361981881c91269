# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's settings from a container's environment; TensorFlow is not needed."""

import json
import subprocess
import sys

import pytest

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.tensorflow.options import TensorFlowOptions, plan_for
from gpupack_workloads.tensorflow.setup import setup_for

GANG = {
    "GPUPACK_RENDEZVOUS": "train-1-0.train.team.svc:29400",
    "GPUPACK_WORKERS": "2",
    "GPUPACK_WORKER_INDEX": "1",
    "GPUPACK_BACKEND": "auto",
}
WHOLE = {
    "GPUPACK_DEVICES": "GPU-a,GPU-b",
    "GPUPACK_DEVICE_PERCENT": "100",
    "GPUPACK_DEVICE_MEMORY_MIB": "80000",
    "GPUPACK_DEVICE_ISOLATION": "exclusive",
}
SHARE = WHOLE | {
    "GPUPACK_DEVICES": "GPU-a",
    "GPUPACK_DEVICE_PERCENT": "25",
    "GPUPACK_DEVICE_MEMORY_MIB": "10240",
    "GPUPACK_DEVICE_ISOLATION": "cooperative",
}


def setup(environ, **options):
    return setup_for(TensorFlowOptions(**options), environ)


def test_tf_config_follows_from_the_gang():
    config = json.loads(setup(GANG).environment["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": [f"train-1-{i}.train.team.svc:29400" for i in range(2)]},
        "task": {"type": "worker", "index": 1},
    }
    assert setup(GANG).settings(1).strategy == "MultiWorkerMirroredStrategy"
    assert setup(GANG).peers == ("train-1-0.train.team.svc",)
    assert (setup(GANG).workers, setup(GANG).index) == (2, 1)


def test_a_worker_that_is_alone_has_a_replica_on_each_of_its_gpus():
    alone = setup(WHOLE)
    settings = alone.settings(2)
    assert (settings.strategy, settings.strategy_devices) == (
        "MirroredStrategy",
        ["/gpu:0", "/gpu:1"],
    )
    assert (alone.workers, alone.peers, alone.given) == (1, (), 2)
    assert "TF_CONFIG" not in alone.environment


def test_cuda_visible_devices_stays_as_the_container_has_it():
    assert not [name for name in setup(WHOLE).environment if name.startswith("CUDA")]


def test_a_whole_gpu_has_no_limit_and_memory_grows():
    settings = setup(WHOLE).settings(2)
    assert (settings.memory_limit_mib, settings.memory_growth) == ([], True)
    assert setup(WHOLE).memory_limit_mib == 0


def test_without_growth_all_memory_is_taken_at_once():
    taken = setup(WHOLE, memory_growth=False)
    assert taken.settings(2).memory_growth is False
    assert taken.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"


def test_of_a_share_tensorflow_leaves_a_fifth_to_cuda():
    assert setup(SHARE).settings(1).memory_limit_mib == [8192]
    assert setup(SHARE | {"GPUPACK_DEVICE_ISOLATION": "limited"}).memory_limit_mib == 8192


def test_a_fraction_is_of_the_share_or_of_the_gpu():
    assert setup(SHARE, memory_fraction=0.5).memory_limit_mib == 5120
    assert setup(WHOLE, memory_fraction=0.5).settings(2).memory_limit_mib == [40_000, 40_000]


def test_with_a_limit_memory_growth_is_set_by_the_environment():
    assert setup(SHARE).settings(1).memory_growth is False
    assert setup(SHARE).environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


@pytest.mark.parametrize(("backend", "collectives"), [("gloo", "RING"), ("auto", "AUTO")])
def test_gangs_on_shares_do_without_nccl(backend, collectives):
    assert setup(GANG | {"GPUPACK_BACKEND": backend}).collectives == collectives


@pytest.mark.parametrize(
    ("environ", "options", "message"),
    [
        ({}, {"memory_fraction": 0.5}, "--memory-fraction 0.5: of how much GPU memory"),
        (WHOLE | {"GPUPACK_DEVICE_MEMORY_MIB": "all"}, {}, "'all', not a whole number of MiB"),
        (GANG | {"GPUPACK_WORKER_INDEX": "2"}, {}, "task_index is '2': give 0 to 1"),
        (GANG | {"GPUPACK_RENDEZVOUS": "here:1"}, {}, "GPUPACK_RENDEZVOUS is 'here:1'"),
        ({"TF_CONFIG": "{"}, {}, "TF_CONFIG: '{': .*; write"),
    ],
)
def test_an_invalid_environment_of_the_container_is_a_bad_argument(environ, options, message):
    with pytest.raises(BadArgument, match=message):
        setup(environ, **options)


def test_a_cpu_gets_less_to_do_than_gpus():
    options = TensorFlowOptions(epochs=2, images=100, batch_size=10)
    cpu, gpu = (plan_for(options, simulated=simulated) for simulated in (True, False))
    assert cpu.width < gpu.width
    assert (cpu.epochs, cpu.train, cpu.batch_size) == (gpu.epochs, gpu.train, gpu.batch_size)
    assert (cpu.epochs, cpu.train, cpu.batch_size) == (2, 100, 10)


def test_neither_torch_nor_tensorflow_is_imported_for_the_settings():
    code = (
        "import sys; import gpupack_workloads.train_cnn.synthetic;"
        "import gpupack_workloads.commands.tensorflow, gpupack_workloads.tensorflow.supervised;"
        "print(sorted({'torch', 'tensorflow', 'keras', 'httpx', 'triton'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
