# SPDX-License-Identifier: Apache-2.0
"""The folders of the operators have one shape."""

from pathlib import Path

import pytest

import gpupack_kernels

PACKAGE = Path(gpupack_kernels.__file__).parent
OPERATORS = sorted(path.parent for path in PACKAGE.glob("operators/*/__init__.py"))
FURTHER = {"problem", "tuning"}
KINDS_OF_GPU = {"hopper", "portable"}
SEVERAL_KERNELS = {"backward", "compiled", "forward", "plans", "tiles"}
"""Modules of a kind of GPU whose kernel is too long for one."""


def content(folder):
    """Return the modules and the packages of a folder."""
    return {path.stem for path in folder.iterdir() if not path.name.startswith("__")}


@pytest.mark.parametrize("folder", OPERATORS, ids=lambda path: path.name)
def test_an_operator_has_its_function_its_launches_and_its_kernels(folder):
    here = content(folder) - FURTHER
    assert here - KINDS_OF_GPU - {"kernel"} == {"ops", "launch"}
    assert here & (KINDS_OF_GPU | {"kernel"}) in ({"kernel"}, KINDS_OF_GPU)


@pytest.mark.parametrize("kind", sorted(KINDS_OF_GPU))
@pytest.mark.parametrize("folder", OPERATORS, ids=lambda path: path.name)
def test_the_kernels_of_a_kind_of_gpu_have_their_own_launches(folder, kind):
    here = content(folder / kind) if (folder / kind).is_dir() else {"launch", "kernel"}
    assert "launch" in here
    assert here - {"launch"} - SEVERAL_KERNELS in ({"kernel"}, set())


def test_each_function_of_the_package_is_of_an_operator_and_each_operator_has_one():
    assert set(gpupack_kernels.FOLDERS.values()) == {path.name for path in OPERATORS}


def test_the_package_has_no_other_functions():
    with pytest.raises(AttributeError, match="no attribute 'conv'"):
        gpupack_kernels.conv  # noqa: B018


def test_kernels_in_another_gpus_memory_are_no_operators():
    for folder in PACKAGE.glob("communication/*/__init__.py"):
        assert content(folder.parent) == {"launch", "kernel"}
