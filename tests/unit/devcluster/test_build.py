# SPDX-License-Identifier: Apache-2.0
"""When something is built again, and how."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpupack_devcluster import build as builder
from gpupack_devcluster.build import (
    COMPONENTS,
    KUBERNETES,
    TARGETS,
    Target,
    build_target,
    flags,
    hash_inputs,
    required,
)
from gpupack_devcluster.errors import BuildFailed, UnknownName

ROOT = Path(__file__).parents[3]
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
    said = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    assert said in flags(TARGETS["kube"])[-1]


def test_a_module_that_nothing_requires_has_no_version():
    with pytest.raises(BuildFailed, match=r"go\.mod requires no k8s.io/kubernetes/v2"):
        required("go", "k8s.io/kubernetes/v2")


@pytest.mark.parametrize("file", [".ci/load-images", "images/gpupack_images/catalog.py"])
def test_who_cannot_ask_go_mod_names_the_same_kubernetes(file):
    named = re.findall(r"kube-scheduler:(v[\d.]+)", (ROOT / file).read_text())
    assert named == [KUBERNETES]


def test_an_unknown_target_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UnknownName, match="no target 'docker': kube, containerd"):
        builder.build(tmp_path, ["docker"])


def test_a_failed_build_says_what_the_compiler_said(module, tmp_path):
    (module / "go.mod").write_text("nonsense")
    with pytest.raises(BuildFailed, match="nonsense"):
        build_target(TARGET, tmp_path / "bin")


def test_progress_is_told_while_packages_are_compiled(monkeypatch, caplog):
    caplog.set_level("INFO", logger="gpupack_devcluster")
    monkeypatch.setattr(builder, "TOLD_EVERY_SECONDS", 0)
    lines = ["go: downloading x v1\n", "k8s.io/api/core/v1\n", "k8s.io/api/apps/v1\n"]
    assert list(builder.told("kube", lines)) == lines
    assert caplog.messages[-1].endswith("kube: 2 packages compiled")


def test_the_build_needs_no_library_and_says_in_one_line_what_is_wrong(tmp_path):
    folder = str(Path(builder.__file__).parents[1])
    script = (
        f"import sys; sys.path.insert(0, {folder!r})\n"
        "from gpupack_devcluster.build import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(
        [*command, tmp_path, "docker"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no target 'docker': kube, containerd")
