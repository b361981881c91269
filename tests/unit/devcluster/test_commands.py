# SPDX-License-Identifier: Apache-2.0
"""Programs of the host."""

import pytest

from gpupack_devcluster import commands
from gpupack_devcluster.errors import CommandFailed, ToolMissing


def test_the_output_of_a_program_is_returned():
    assert commands.run(["cat"], text_input="hello") == "hello"


def test_a_failure_has_the_end_of_the_programs_output():
    with pytest.raises(CommandFailed, match="failed \\(3\\): out of cheese"):
        commands.run(["sh", "-c", "echo out of cheese >&2; exit 3"])


def test_a_missing_program_is_named():
    with pytest.raises(ToolMissing, match="program gpupack-nothing is not installed"):
        commands.run(["gpupack-nothing"])


def test_the_error_names_all_missing_tools_and_their_packages(monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "CNI_FOLDERS", ())
    monkeypatch.setattr("shutil.which", lambda name, path: name not in {"ip", "runc"} or None)
    with pytest.raises(ToolMissing) as caught:
        commands.require_tools(tmp_path)
    assert str(caught.value) == (
        "not installed: ip, runc, CNI plugins: "
        "apt-get install containernetworking-plugins iproute2 runc"
    )


def test_tools_of_a_bundle_count(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(commands, "CNI_FOLDERS", ())
    folder = tmp_path / "cni"
    folder.mkdir()
    for file in [tmp_path / name for name in commands.DEBIAN_PACKAGE] + [
        folder / name for name in commands.CNI_PLUGINS
    ]:
        file.touch(mode=0o755)
    commands.require_tools(tmp_path)
    assert commands.cni_folder(tmp_path) == folder


def test_the_error_for_missing_binaries_names_the_build_command(tmp_path):
    (tmp_path / "kube").touch()
    with pytest.raises(ToolMissing, match=r"lacks ctr: run `gpupack-devcluster build`"):
        commands.require_binaries(tmp_path, ["kube", "ctr"])
