# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack import Allocation, CallRefused, TrainingGPUConfig, WorkerGpus


def allocation(give_back=lambda: None, **environment):
    return Allocation(
        allocation_id="one",
        config=TrainingGPUConfig(gpu_count=2),
        workers=(WorkerGpus("node", (0, 1), ("GPU-a", "GPU-b")),),
        environment={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", **environment},
        give_back=give_back,
    )


def test_variables_are_set_while_held_and_restored_afterwards():
    environ = {"CUDA_VISIBLE_DEVICES": "7", "PATH": "/bin"}
    with allocation(GPUPACK_SIMULATED="false") as gpus:
        gpus.apply(environ)
        assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert environ == {"CUDA_VISIBLE_DEVICES": "7", "PATH": "/bin"}


def test_variables_changed_by_the_program_are_kept():
    environ = {}
    with allocation() as gpus:
        gpus.apply(environ)
        environ["CUDA_VISIBLE_DEVICES"] = "mine"
    assert environ == {"CUDA_VISIBLE_DEVICES": "mine"}


def test_an_allocation_is_released_once():
    given = []
    gpus = allocation(lambda: given.append(1))
    gpus.release()
    gpus.release()
    assert given == [1]
    assert not gpus.held


def test_a_failed_release_can_be_repeated():
    answers = [CallRefused("later", status=503), None]

    def give_back():
        if error := answers.pop(0):
            raise error

    gpus = allocation(give_back)
    with pytest.raises(CallRefused):
        gpus.release()
    assert gpus.held
    gpus.release()
    assert not gpus.held


def test_an_allocation_has_the_form_of_the_rest_api():
    document = allocation().as_dict()
    assert (document["success"], document["node_name"]) == (True, "node")
    assert document["gpu_config"]["gpu_count"] == 2
    assert document["gpu_config"]["workers"][0]["device_uuids"] == ["GPU-a", "GPU-b"]
