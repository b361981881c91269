# SPDX-License-Identifier: Apache-2.0
"""Images of a GPU host's own files."""

import sys
from pathlib import Path

import gpu_images
import pytest

PYTHON = gpu_images.HostPython(
    executable=Path("/opt/torch/bin/python3"),
    prefix=Path("/opt/torch"),
    base_executable=Path("/usr/bin/python3.12"),
    base_prefix=Path("/usr"),
    numpy=Path("/opt/torch/lib/python3.12/site-packages/numpy"),
)


def images(python=PYTHON):
    made = gpu_images.host_images(
        python, root=Path("/code"), site=Path("/site"), binaries=Path("/bin")
    )
    return {image.name: image for image in made}


def targets(image):
    return {tree.target for layer in image.layers for tree in layer.trees}


def test_all_images_of_the_node_are_written():
    assert set(gpu_images.NAMES) <= set(images())


def test_services_have_numpy_and_our_libraries_but_not_torch():
    operator = images()["docker.io/gpupack/operator:dev"]
    assert {"/opt/site", "/opt/gpupack/gpupack_operator"} <= targets(operator)
    assert "/opt/torch" not in targets(operator)
    assert operator.config["User"] == "65532:65532"


def test_the_agent_is_root_for_the_kubelets_sockets():
    assert images()["docker.io/gpupack/agent:dev"].config["User"] == ""


def test_workloads_run_the_python_that_has_torch_and_not_as_root():
    workloads = images()[gpu_images.WORKLOADS]
    assert "/opt/torch" in targets(workloads)
    assert workloads.config["Entrypoint"][0] == "/opt/torch/bin/python3"
    assert workloads.config["User"] == "65532:65532"


def test_a_system_python_with_torch_needs_no_separate_layer():
    system = gpu_images.HostPython(
        executable=Path("/usr/bin/python3"),
        prefix=Path("/usr"),
        base_executable=Path("/usr/bin/python3.12"),
        base_prefix=Path("/usr"),
        numpy=Path("/usr/lib/python3/dist-packages/numpy"),
    )
    assert len(images(system)[gpu_images.WORKLOADS].layers) == 2


def test_no_image_contains_nvidias_driver():
    patterns = gpu_images.system_layer(PYTHON).trees[0].leave_out
    for name in ("**/libcuda.so*", "**/libnvidia-*", "**/nvidia-smi", "local/nvidia"):
        assert name in patterns


def test_an_unfit_python_is_refused_with_a_hint():
    with pytest.raises(gpu_images.PythonUnfit, match=r"the bundle is for 2\.7: set PYTHON"):
        gpu_images.this_python("2.7")
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(gpu_images.PythonUnfit, match="torch, triton"):
        gpu_images.this_python(running)
