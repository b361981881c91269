# SPDX-License-Identifier: Apache-2.0
"""The command line reports errors in one line."""

import pytest
from click.testing import CliRunner

from gpupack_devcluster.cli import main


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "command",
    [["up"], ["down"], ["reset"], ["status"], ["load", "x:1"], ["kill", "host", "etcd"]],
)
def test_without_root_every_command_says_so_in_one_line(command, tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = invoke("--state", tmp_path, *command)
    assert result.exit_code == 1
    assert result.output.startswith("Error: this needs root")
    assert result.output.count("\n") == 1


def test_an_unknown_target_is_an_error_of_one_line(tmp_path):
    result = invoke("--state", tmp_path, "build", "--only", "docker")
    assert result.output.startswith("Error: no target 'docker'")
    assert result.exit_code == 1


def test_the_error_for_an_unknown_log_lists_the_existing_ones(tmp_path):
    (tmp_path / "log" / "gpupack-1").mkdir(parents=True)
    (tmp_path / "log" / "gpupack-1" / "kubelet.log").touch()
    result = invoke("--state", tmp_path, "logs", "etcd")
    assert "no log of etcd: gpupack-1/kubelet" in result.output


def test_every_command_is_explained():
    assert all(command.help for command in main.commands.values())
