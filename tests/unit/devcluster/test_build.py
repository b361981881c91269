# SPDX-License-Identifier: Apache-2.0
"""When something is built again, and how."""

import pytest

from gpupack_devcluster import build as builder
from gpupack_devcluster.build import COMPONENTS, TARGETS, Target, build_target, flags, hash_inputs
from gpupack_devcluster.errors import BuildFailed, UnknownName

TARGET = Target(name="tool", module="m", packages={"tool": "."}, links=("alias",))


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (folder / name).touch()
    monkeypatch.setattr(builder, "MODULES", tmp_path)
    return folder


@pytest.fixture
def compiled(monkeypatch):
    calls = []

    def compile_package(_target, package, output):
        calls.append(package)
        output.touch()

    monkeypatch.setattr(builder, "compile_package", compile_package)
    return calls


def test_a_target_is_built_once_and_again_after_a_change_of_its_source(module, tmp_path, compiled):
    binaries = tmp_path / "bin"
    build_target(TARGET, binaries)
    build_target(TARGET, binaries)
    assert compiled == ["."]
    (module / "main.go").write_text("package main")
    build_target(TARGET, binaries)
    assert compiled == [".", "."]


def test_a_binary_that_is_gone_is_built_again(module, tmp_path, compiled):
    assert module.is_dir()
    build_target(TARGET, tmp_path / "bin")
    (tmp_path / "bin" / "tool").unlink()
    build_target(TARGET, tmp_path / "bin")
    assert len(compiled) == 2


def test_other_flags_make_another_binary(module):
    changed = Target(name="tool", module="m", packages={"tool": "."}, variables={"v": "2"})
    assert hash_inputs(TARGET, module) != hash_inputs(changed, module)


def test_the_components_are_names_of_one_binary(module, tmp_path, compiled):
    assert module.is_dir()
    build_target(TARGET, tmp_path / "bin")
    assert (tmp_path / "bin" / "alias").readlink().name == "tool"
    assert TARGETS["kube"].links == COMPONENTS
    assert compiled


def test_kubernetes_says_its_version():
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags(TARGETS["kube"])[-1]


def test_an_unknown_target_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UnknownName, match="no target 'docker': kube, containerd"):
        builder.build(tmp_path, only="docker")


def test_a_failed_build_says_what_the_compiler_said(module, tmp_path):
    (module / "go.mod").write_text("nonsense")
    with pytest.raises(BuildFailed, match="nonsense"):
        build_target(TARGET, tmp_path / "bin")
