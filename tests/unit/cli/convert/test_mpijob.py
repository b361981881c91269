# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cli.convert.mpirun import rank_command
from gpupack_cli.convert.report import NotConverted, Report


def test_ranks_run_in_the_workers_without_the_launcher(converted):
    found = converted("mpijob.yaml")
    assert (found.spec["workers"], found.spec["gpus"]) == (2, 1)
    assert found.spec["distributed"] == {"backend": "mpi", "processesPerWorker": 1}
    assert found.worker["command"][:2] == [
        "python",
        "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py",
    ]
    assert {each["name"]: each["value"] for each in found.worker["env"]} == {
        "NCCL_DEBUG": "INFO",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "^openib",
    }
    assert found.dropped == []


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["mpirun", "-np", "2", "a", "-np"], ("a", "-np")),
        (["/usr/bin/mpiexec", "--hostfile", "/h", "-wdir", "/w", "a"], ("a",)),
        (["sh", "-c", "mpirun -n 2 a 'b c'"], ("a", "b c")),
        (["bash", "-ec", "exec mpirun \\\n -x A=1 a"], ("a",)),
        (["mpirun", "-genv", "A", "1", "-ppn", "2", "a"], ("a",)),
    ],
)
def test_the_program_of_a_rank_follows_the_options(words, program):
    assert rank_command(words, Report(), path="p").program == program


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["python", "a.py"],
        ["mpirun", "-np", "2"],
        ["mpirun", "--unknown", "2", "a"],
        ["sh", "-c", "sleep 1; mpirun a"],
        ["sh", "-c", "mpirun 'a"],
    ],
)
def test_any_other_command_line_is_not_converted(words):
    with pytest.raises(NotConverted):
        rank_command(words, Report(), path="p")


def test_a_number_of_ranks_beyond_the_slots_is_reported(converted):
    worker = {"name": "w", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    launcher = {"name": "l", "image": "other", "command": ["mpirun", "-np", "3", "a"]}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "a"},
        "spec": {
            "runLauncherAsWorker": True,
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": 1, "template": {"spec": {"containers": [worker]}}},
            },
        },
    }
    found = converted(job)
    path = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]"
    assert found.dropped == [f"{path}.image", f"{path}.command -np"]
    assert found.spec["workers"] == 2
