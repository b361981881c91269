# SPDX-License-Identifier: Apache-2.0
"""Programs of the host."""

import pytest

from gpupack_devcluster import commands
from gpupack_devcluster.errors import CommandFailed, ToolMissing


def test_the_output_of_a_program_is_returned():
    assert commands.run(["cat"], text_input="hello") == "hello"


def test_a_failure_says_the_programs_last_words():
    with pytest.raises(CommandFailed, match="failed \\(3\\): out of cheese"):
        commands.run(["sh", "-c", "echo out of cheese >&2; exit 3"])


def test_a_missing_program_is_named():
    with pytest.raises(ToolMissing, match="program gpupack-nothing is not installed"):
        commands.run(["gpupack-nothing"])


def test_missing_tools_are_told_all_at_once_with_the_packages_that_bring_them(monkeypatch):
    monkeypatch.setattr(commands, "CNI_FOLDERS", ())
    monkeypatch.setattr("shutil.which", lambda name: None if name in {"ip", "runc"} else name)
    with pytest.raises(ToolMissing) as caught:
        commands.require_tools()
    assert str(caught.value) == (
        "not installed: ip, runc, CNI plugins: "
        "apt-get install containernetworking-plugins iproute2 runc"
    )


def test_binaries_that_were_never_built_are_named_with_what_builds_them(tmp_path):
    (tmp_path / "kube").touch()
    with pytest.raises(ToolMissing, match=r"lacks ctr: run `gpupack-devcluster build`"):
        commands.require_binaries(tmp_path, ["kube", "ctr"])
