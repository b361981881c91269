# SPDX-License-Identifier: Apache-2.0
"""Conditions and calls of builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpupack_devcluster import build as builder
from gpupack_devcluster.build import COMPONENTS, KUBERNETES, TARGETS, Target, flags, required
from gpupack_devcluster.errors import BuildFailed, UnknownName

ROOT = Path(__file__).parents[3]
TOOL = Target("tool", packages=("./tool", "./other"), links=("alias",))
SECOND = Target("second", packages=("example.org/second",))


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (folder / name).touch()
    monkeypatch.setattr(builder, "MODULE", folder)
    monkeypatch.setattr(builder, "TARGETS", {"tool": TOOL, "second": SECOND})
    return folder


@pytest.fixture
def compiled(module, monkeypatch):
    """Return the packages of each call of the compiler."""
    calls = []

    def compile_packages(packages, folder):
        calls.append(packages)
        for package in packages:
            (folder / package.rpartition("/")[2]).touch()

    monkeypatch.setattr(builder, "compile_packages", compile_packages)
    return calls


def test_a_target_is_built_once_and_again_after_a_change_of_its_source(module, tmp_path, compiled):
    builder.build(tmp_path / "bin", ["tool"])
    builder.build(tmp_path / "bin", ["tool"])
    assert compiled == [["./tool", "./other"]]
    (module / "main.go").write_text("package main")
    builder.build(tmp_path / "bin", ["tool"])
    assert len(compiled) == 2


def test_all_outdated_targets_are_compiled_by_one_call(tmp_path, compiled):
    builder.build(tmp_path / "bin")
    assert compiled == [["./tool", "./other", "example.org/second"]]
    (tmp_path / "bin" / "second").unlink()
    builder.build(tmp_path / "bin")
    assert compiled[1:] == [["example.org/second"]]


def test_other_flags_make_another_binary(tmp_path, compiled, monkeypatch):
    builder.build(tmp_path / "bin", ["tool"])
    monkeypatch.setattr(builder, "VARIABLES", {"v": "2"})
    builder.build(tmp_path / "bin", ["tool"])
    assert len(compiled) == 2


def test_a_change_of_the_launchers_source_makes_its_binary_again(tmp_path, compiled, monkeypatch):
    source = tmp_path / "launcher" / "main.go"
    source.parent.mkdir()
    source.write_text("package main")
    launcher = Target("tool", packages=TOOL.packages, links=TOOL.links, sources=source.parent)
    monkeypatch.setattr(builder, "TARGETS", {"tool": launcher})
    builder.build(tmp_path / "bin", ["tool"])
    builder.build(tmp_path / "bin", ["tool"])
    assert len(compiled) == 1
    source.write_text("package main // changed")
    builder.build(tmp_path / "bin", ["tool"])
    assert len(compiled) == 2


def test_the_components_are_names_of_one_binary(tmp_path, compiled):
    builder.build(tmp_path / "bin", ["tool"])
    assert (tmp_path / "bin" / "alias").readlink().name == "tool"
    assert TARGETS["kube"].links == COMPONENTS


def test_the_binaries_of_kubernetes_have_its_version():
    said = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    assert said in flags()[-1]


def test_a_module_that_nothing_requires_has_no_version():
    with pytest.raises(BuildFailed, match=r"go\.mod requires no k8s.io/kubernetes/v2"):
        required("k8s.io/kubernetes/v2")


@pytest.mark.parametrize("file", [".ci/load-images", "hack/images/gpupack_images/catalog.py"])
def test_files_that_cannot_read_go_mod_name_the_same_kubernetes(file):
    named = re.findall(r"kube-scheduler:(v[\d.]+)", (ROOT / file).read_text())
    assert named == [KUBERNETES]


def test_an_unknown_target_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UnknownName, match="no target 'docker': kube, containerd"):
        builder.build(tmp_path, ["docker"])


def test_a_failed_build_shows_the_compilers_output(module, tmp_path):
    (module / "go.mod").write_text("nonsense")
    with pytest.raises(BuildFailed, match="nonsense"):
        builder.build(tmp_path / "bin", ["tool"])


def test_progress_is_reported_while_packages_are_compiled(monkeypatch, caplog):
    caplog.set_level("INFO", logger="gpupack_devcluster")
    monkeypatch.setattr(builder, "PROGRESS_SECONDS", 0)
    lines = ["go: downloading x v1\n", "k8s.io/api/core/v1\n", "k8s.io/api/apps/v1\n"]
    assert list(builder.with_progress(lines)) == lines
    assert caplog.messages[-1].endswith(" 2 packages compiled")


def test_the_build_needs_no_library_and_prints_errors_in_one_line(tmp_path):
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
