# SPDX-License-Identifier: Apache-2.0
"""The Python API on a host with NVIDIA GPUs: PyTorch in processes of their own, as users run it.

Needs no more than Python with PyTorch, and the client's libraries:

    PYTHONPATH=client:core python3 -m pytest -c /dev/null --rootdir=. --import-mode=importlib \
      tests/gpu/test_python_api.py
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from gpupack.host.ledger import MAX_NAMED_HOLDERS

pytestmark = pytest.mark.gpu

START_SECONDS = 120
"""Of a process: PyTorch is loaded, and CUDA made ready."""

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}

HOLD = """
import json, sys
import gpupack

asked, patience = json.loads(sys.argv[1]), float(sys.argv[2])
config = gpupack.TrainingGPUConfig(**asked)
manager = gpupack.get_gpu_resource_manager()
gpus = manager.allocate_gpu_resources(config, timeout_seconds=patience)
pytorch = gpupack.get_pytorch_gpu_integration(manager)
done = pytorch.setup_pytorch_gpu(config, gpus)
import torch
held = torch.ones(1 << 28, dtype=torch.uint8, device=done.device)
uuid = str(torch.cuda.get_device_properties(done.device).uuid).removeprefix("GPU-")
print(json.dumps({"held": gpus.device_uuids, "seen": f"GPU-{uuid}"}), flush=True)
sys.stdin.read()
manager.close()
"""


def gpus():
    """Return the UUIDs that nvidia-smi lists."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def environ(tmp_path):
    """Return the environment of users' processes: a new ledger, and this machine's GPUs."""
    ours = {"GPUPACK_HOST_FOLDER": str(tmp_path / "ledger"), "GPUPACK_BACKEND": "this-machine"}
    return {**os.environ, **NO_MULTICAST, **ours}


@pytest.fixture
def python(environ, tmp_path):
    """Runs a program to its end; what its last line says."""

    def run(program, *arguments, **variables):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            env={**environ, **variables},
            cwd=tmp_path,
            text=True,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def holding(environ, tmp_path):
    """Start a process that holds GPUs until it is killed or its input closes."""
    started = []

    def start(patience=0.0, **asked):
        arguments = (json.dumps(asked), str(patience))
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", HOLD, *arguments],
                env=environ,
                cwd=tmp_path,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def reported(process):
    """Return what the process holds, which must be something."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    answer = json.loads(line)
    assert answer["seen"] in answer["held"]
    return answer["held"]


def until_it_waits(ledger):
    until = time.monotonic() + START_SECONDS
    while not list(ledger.glob("waits-*.json")):
        assert time.monotonic() < until
        time.sleep(0.1)


FREE = """
import json, gpupack
status = gpupack.get_gpu_resource_manager().get_gpu_status()
print(json.dumps([status.available_gpus, status.total_gpus, status.simulated]))
"""


def test_the_gpus_of_this_machine_are_those_that_the_driver_shows(python):
    found = python("""
        import json, gpupack
        (node,) = gpupack.get_gpu_resource_manager().get_available_gpu_nodes()
        print(json.dumps([[each.uuid, each.gpu_type, each.memory_gb] for each in node.devices]))
    """)
    fields = ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    lines = subprocess.run(fields, capture_output=True, text=True, check=True).stdout
    said = [line.split(", ") for line in lines.splitlines()]
    assert [[uuid, name] for uuid, name, _ in found] == [[uuid, name] for uuid, name, _ in said]
    for (_, _, gb), (_, _, mib) in zip(found, said, strict=True):
        assert gb == pytest.approx(int(mib) * 2**20 / 1e9, abs=0.01)


def test_a_model_is_trained_in_mixed_precision_on_its_gpu(python):
    found = python("""
        import json
        import gpupack

        config = gpupack.TrainingGPUConfig(mixed_precision=True, gpu_memory_fraction=0.5)
        mlp = {"type": "mlp", "input_dim": 64, "hidden_units": [512, 512], "output_dim": 1}
        with gpupack.get_gpu_resource_manager() as manager:
            pytorch = gpupack.get_pytorch_gpu_integration(manager)
            done = pytorch.setup_pytorch_gpu(config)
            model = pytorch.create_pytorch_model_with_gpu(mlp, config)
            import torch

            torch.manual_seed(0)
            optimizer, scaler = torch.optim.Adam(model.parameters()), done.grad_scaler()
            inputs = torch.randn(4096, 64, device=done.device)
            targets = inputs[:, :4].sum(1, keepdim=True)
            losses = []
            for _ in range(200):
                with done.autocast():
                    outputs = model(inputs)
                    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())
            try:
                total = torch.cuda.get_device_properties(0).total_memory
                torch.empty(int(total * 0.6), dtype=torch.uint8, device=done.device)
                limited = False
            except torch.OutOfMemoryError:
                limited = True
            print(json.dumps({
                "device": str(next(model.parameters()).device),
                "seen": str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-"),
                "given": done.allocation.device_uuids,
                "gpus": torch.cuda.device_count(),
                "dtype": str(outputs.dtype),
                "losses": [losses[0], losses[-1]],
                "limited": limited,
            }))
    """)
    print(json.dumps(found))
    assert (found["device"], found["gpus"]) == ("cuda:0", 1)
    assert found["given"] == [f"GPU-{found['seen']}"]
    assert found["dtype"] == "torch.bfloat16"
    first, last = found["losses"]
    assert last < first / 10
    assert found["limited"]


def test_processes_get_gpus_of_their_own_one_more_waits_and_has_those_of_one_that_is_killed(
    holding, python, tmp_path
):
    all_gpus = gpus()
    held = {process: reported(process) for process in [holding() for _ in all_gpus]}
    assert sorted(uuid for each in held.values() for uuid in each) == sorted(all_gpus)
    refused = holding()
    _, said = refused.communicate(timeout=START_SECONDS)
    assert refused.returncode
    assert "NotEnoughGpus" in said
    assert said.count("held by process") == min(len(held), MAX_NAMED_HOLDERS)
    waits = holding(patience=START_SECONDS)
    until_it_waits(tmp_path / "ledger")
    killed = next(iter(held))
    killed.send_signal(signal.SIGKILL)
    assert reported(waits) == held.pop(killed)
    assert python(FREE) == [0, len(all_gpus), False]
    for process in (*held, waits):
        process.communicate("")
        assert process.returncode == 0
    assert python(FREE) == [len(all_gpus), len(all_gpus), False]


def test_two_shares_are_of_one_gpu_which_no_process_gets_whole(holding):
    share = {"compute_ratio": 0.5, "memory_gb": 10}
    one, two = holding(**share), holding(**share)
    assert reported(one) == reported(two)
    whole = holding(gpu_count=len(gpus()))
    _, said = whole.communicate(timeout=START_SECONDS)
    assert "NotEnoughGpus" in said


def test_a_gpu_in_use_by_a_process_without_an_allocation_is_not_assigned(python, environ):
    stranger = """
        import sys, torch
        held = torch.ones(1 << 20, device="cuda:0")
        print("there", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(stranger)],
        env=environ,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout.readline() == "there\n"
            free, total, _ = python(FREE)
            assert free == total - 1
            refused = python(
                """
                import json, sys, gpupack
                config = gpupack.TrainingGPUConfig(gpu_count=int(sys.argv[1]))
                try:
                    gpupack.get_gpu_resource_manager().allocate_gpu_resources(
                        config, timeout_seconds=0
                    )
                except gpupack.NotEnoughGpus as error:
                    print(json.dumps(str(error)))
                """,
                str(total),
            )
            assert f"is used by process {process.pid}, without an allocation" in refused
        finally:
            process.kill()


def test_ranks_of_torchrun_share_an_allocation_and_agree(python, tmp_path):
    count = len(gpus())
    if count < 2:
        pytest.skip("needs two GPUs")
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import gpupack, torch
            config = gpupack.TrainingGPUConfig(2, distributed_training=True, mixed_precision=True)
            pytorch = gpupack.get_pytorch_gpu_integration()
            done = pytorch.setup_pytorch_gpu(config)
            model = pytorch.create_pytorch_model_with_gpu(lambda: torch.nn.Linear(8, 1), config)
            rank = torch.distributed.get_rank()
            with done.autocast():
                model(torch.full((4, 8), rank + 1.0, device=done.device)).sum().backward()
            torch.cuda.synchronize()
            grad = next(model.parameters()).grad[0, 0].item()
            open(f"rank-{rank}", "w").write(f"{done.device} {grad}")
            torch.distributed.destroy_process_group()
        """)
    )
    environment = python("""
        import json, os, subprocess, sys, gpupack
        manager = gpupack.get_gpu_resource_manager()
        with manager.allocate_gpu_resources(gpupack.TrainingGPUConfig(2)) as gpus:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
            environ = {**os.environ, **gpus.environment}
            subprocess.run([*torchrun, "train.py"], env=environ, check=True)
            print(json.dumps(gpus.environment))
    """)
    assert len(environment["CUDA_VISIBLE_DEVICES"].split(",")) == 2
    # Mean over ranks of 4 rows of 1.0 and 4 rows of 2.0.
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]
    assert said == ["cuda:0 6.0", "cuda:1 6.0"]
