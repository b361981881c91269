# SPDX-License-Identifier: Apache-2.0
"""The training engine of the compatibility package, in a separate process."""

import json
import os

import python_page

PROGRAM = """
import asyncio, json
from types import SimpleNamespace

from backend.algorithm_engine.core import AlgorithmTrainingEngine
from gpupack import TrainingGPUConfig

TWO = TrainingGPUConfig(gpu_count=2)
engine = AlgorithmTrainingEngine()
seen = {}


def held():
    return engine.get_gpu_resource_status()["utilization"]["gpu_utilization"] * 8


class Trainer:
    async def train(self, config, data):
        seen[config.name] = held()
        same = engine.gpu_manager.held(TWO)
        seen[config.name + "-uuids"] = len(same.device_uuids) if same else 0
        return 1 / data["divisor"]


def train(name, divisor=1, kind="a", **gpu_config):
    config = SimpleNamespace(name=name, algorithm_params={"gpu_config": gpu_config})
    try:
        return asyncio.run(engine.train_algorithm(kind, config, {"divisor": divisor}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


engine.algorithm_registry["a"] = Trainer()
said = {
    "two": train("two", gpu_count=2),
    "none": train("none", enabled=False),
    "fails": train("fails", divisor=0, gpu_count=2),
    "too many": train("too many", gpu_count=9),
    "no trainer": train("no trainer", kind="b"),
    "wrong": train("wrong", gpu_count=0),
}
try:
    engine.list_training_tasks()
except AttributeError as error:
    said["other call"] = str(error)
print(json.dumps({"said": said, "seen": seen, "at the end": held()}))
"""


def test_the_older_engine_holds_gpus_while_a_trainer_runs(tmp_path):
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GPUPACK_BACKEND": "this-machine",
        "GPUPACK_SIMULATED_GPUS": "8xH100",
        "GPUPACK_HOST_FOLDER": str(tmp_path / "ledger"),
    }
    done = python_page.run(PROGRAM, tmp_path, environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seen"] == {
        "two": 2,
        "two-uuids": 2,
        "none": 0,
        "none-uuids": 0,
        "fails": 2,
        "fails-uuids": 2,
    }
    assert found["at the end"] == 0
    said = found["said"]
    assert (said["two"], said["none"]) == (1, 1)
    assert said["fails"].startswith("ZeroDivisionError")
    assert "'gpu_count': 9" in said["too many"]
    assert "algorithm_registry" in said["no trainer"]
    assert said["wrong"].startswith("ConfigInvalid: TrainingGPUConfig.gpu_count: 0")
    assert "keep your own engine's" in said["other call"]
