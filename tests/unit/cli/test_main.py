# SPDX-License-Identifier: Apache-2.0
"""The command as a user runs it: a separate process in its own folder."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_process import CLI, environment

from gpupack_cli import main

SCRIPTS = Path(sys.executable).parent
INSTALLED = pytest.mark.skipif(
    not (SCRIPTS / "gpupack").exists(),
    reason="gpupack is not installed in this environment; `make venv` makes one in which it is",
)
HEAVY = (
    "rich",
    "httpx",
    "kubernetes",
    "numpy",
    "cryptography",
    "gpupack_placement.cluster",
    "yaml",
)


def gpupack(*arguments, folder, program="gpupack", stdin="", **environ):
    bare = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        [SCRIPTS / program, *arguments],
        cwd=folder,
        env=bare | environ,
        input=stdin,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


@INSTALLED
@pytest.mark.parametrize("command", [[], *([name] for name in main.COMMANDS), ["gpu", "cordon"]])
def test_every_command_has_a_help_text(command, tmp_path):
    done = gpupack(*command, "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['gpupack', *command])} ")


@INSTALLED
def test_the_kubectl_plugin_shows_its_name(tmp_path):
    done = gpupack("jobs", "--help", folder=tmp_path, program="kubectl-gpupack")
    assert done.stdout.startswith("Usage: kubectl gpupack jobs ")


@INSTALLED
@pytest.mark.parametrize(
    "command",
    [
        ["jobs"],
        ["queue", "-A"],
        ["nodes"],
        ["top"],
        ["explain", "a"],
        ["logs", "a"],
        ["gpu", "show", "a"],
        ["drain", "a", "--reason", "r"],
        ["quota"],
        ["cost"],
        ["snapshot"],
        ["doctor"],
        ["submit", "--image", "i", "--", "true"],
    ],
    ids=lambda words: words[0],
)
def test_a_missing_kubeconfig_is_reported_in_one_line(command, tmp_path):
    done = gpupack(*command, folder=tmp_path)
    assert done.returncode == 78
    assert done.stderr.startswith("gpupack: no kubeconfig")
    assert "name one in KUBECONFIG" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@INSTALLED
@pytest.mark.parametrize("content", ["", "just words", "a: [1", "\x00\x01", "current-context: x"])
def test_an_invalid_kubeconfig_is_reported_in_one_line(content, tmp_path):
    (tmp_path / "config").write_text(content)
    done = gpupack("jobs", folder=tmp_path, KUBECONFIG="config")
    assert done.returncode == 78
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@INSTALLED
def test_a_dry_run_sends_no_request(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    done = gpupack(
        "submit",
        "--image",
        "i",
        "--script",
        "train.py",
        "--dry-run",
        "--",
        "python",
        "train.py",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "kind: GPUJob" in done.stdout
    assert "kind: ConfigMap" in done.stdout


@INSTALLED
def test_only_debug_shows_a_traceback(tmp_path):
    done = gpupack("jobs", "--debug", folder=tmp_path)
    assert "Traceback" in done.stderr
    assert "Traceback" not in gpupack("jobs", folder=tmp_path).stderr


@INSTALLED
@pytest.mark.parametrize(
    ("shell", "holds"),
    [
        ("bash", "complete -o"),
        ("zsh", "#compdef gpupack"),
        ("fish", "complete --no-files --command gpupack"),
    ],
)
def test_the_completion_script_is_printed(shell, holds, tmp_path):
    done = gpupack("completion", shell, folder=tmp_path)
    assert holds in done.stdout


@INSTALLED
def test_bash_completes_commands_and_options(tmp_path):
    asked = {"_GPUPACK_COMPLETE": "bash_complete", "COMP_WORDS": "gpupack ex", "COMP_CWORD": "1"}
    assert gpupack(folder=tmp_path, **asked).stdout == "plain,explain\n"
    asked |= {"COMP_WORDS": "gpupack jobs --all", "COMP_CWORD": "2"}
    assert gpupack(folder=tmp_path, **asked).stdout == "plain,--all-namespaces\n"


def test_submit_imports_only_what_it_needs():
    """Heavy imports would delay the first line of each job."""
    code = "import gpupack_cli.commands.submit, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert sorted(set(HEAVY) & set(done.stdout.split())) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["jobs", "--nosuch"],
        ["explain"],
        ["submit", "--gpus", "0", "--image", "i", "--", "x"],
        ["drain", "a", "--reason", "r", "--stop-in", "soon"],
        ["jobs", "-o", "xml"],
        ["explain", "team/job"],
        ["explain", ""],
        ["logs", "a/../b"],
        ["gpu", "show", "a/../b"],
        ["gpu", "cordon", "a/../b", "--reason", "r"],
        ["jobs", "-n", "../default"],
        ["jobs", "-n", "a" * 64],
        ["submit", "--image", "i", "--name", "Bad_Name", "--dry-run", "--", "x"],
        ["submit", "--image", "i", "--on", "", "--", "x"],
        ["submit", "--image", "i", "--share", "0,1Gi", "--dry-run", "--", "x"],
        ["drain", "a", "--reason", "r", "--stop-in", "99999999d"],
        ["top", "--interval", "nan"],
    ],
)
def test_wrong_usage_is_reported_with_exit_status_two(arguments, capsys):
    assert main.run_command(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_job_name_with_a_namespace_is_refused_with_a_fix(capsys):
    assert main.run_command(["explain", "team/job"]) == 2
    assert "the namespace of a job by -n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "maximum"), [(["explain", "a" * 254], 253), (["jobs", "-n", "a" * 64], 63)]
)
def test_a_long_name_is_refused_with_the_maximum(arguments, maximum, capsys):
    assert main.run_command(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"is too long: it has {maximum + 1} characters, and the maximum is {maximum}" in said


def test_an_internal_error_is_one_line_with_its_exit_status(monkeypatch, capsys):
    def fail(**_):
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(main.group.get_command(None, "jobs"), "callback", fail)
    assert main.run_command(["jobs"]) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == "gpupack: internal error: ZeroDivisionError: by zero; --debug shows the traceback"
    )


def test_every_listed_command_exists():
    for name in main.COMMANDS:
        command = main.group.get_command(None, name)
        assert command.name == name
        assert command.help
    shown = CliRunner().invoke(main.group, ["--help"]).output
    assert all(f"  {name} " in shown for name in main.COMMANDS)


def test_a_closed_pipe_is_no_error():
    """All is written at once, so that `pipefail` hardly ever fails, as for kubectl."""
    command = f"{shlex.join(CLI)} completion bash | grep -q gpupack"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
