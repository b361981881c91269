# SPDX-License-Identifier: Apache-2.0
import json
import socket
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpupack_workloads import commands
from gpupack_workloads.cli import main
from gpupack_workloads.errors import BadArgument, Terminated, WorkloadError
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_server import part
from gpupack_workloads.inference_server.listener import bound
from gpupack_workloads.inference_server.options import ServerOptions
from gpupack_workloads.results import Result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inference-load", "--rate", "0"], "0.0 is not in the range"),
        (["inference-load", "--seconds", "0"], "0.0 is not in the range"),
        (["inference-load", "--prompt-tokens", "0"], "0 is not in the range"),
        (["inference-load", "--max-length", "8"], "8 is not in the range"),
        (["inference-load", "--port", "1"], "No such option"),
        (["inference-server", "--port", "65536"], "65536 is not in the range"),
        (["inference-server", "--max-waiting", "0"], "0 is not in the range"),
        (["inference-server", "--drain-seconds", "-1"], "-1.0 is not in the range"),
        (["inference-server", "--checkpoint", "/nowhere"], "'/nowhere' does not exist"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


@pytest.mark.parametrize("url", ["nowhere", "http://127.0.0.1:9"])
def test_another_server_is_looked_for_without_torch(url):
    outcome = CliRunner().invoke(main, ["inference-load", f"--url={url}"])
    assert outcome.exit_code == 2
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url=http://127.0.0.1:9", "--max-batch=4"], "--max-batch is for a server"),
        (["--url=http://127.0.0.1:9", "--no-graphs"], "--graphs is for a server"),
        (["--token-file=token"], "--token-file is for the server of --url"),
    ],
)
def test_options_of_a_started_server_are_refused_with_url(arguments, message, caplog):
    outcome = CliRunner().invoke(main, ["inference-load", *arguments])
    assert (outcome.exit_code, message in outcome.stderr + caplog.text) == (2, True)


@pytest.mark.parametrize(
    ("module", "missing"),
    [("inference_load.client", "aiohttp"), ("inference_server.access", "starlette")],
)
def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(monkeypatch, module, missing):
    for name in [each for each in sys.modules if each.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"gpupack_workloads.{module}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        WorkloadError, match=rf"{missing} is not installed: pip install .*\[serve\]"
    ):
        part(module)
    with pytest.raises(ModuleNotFoundError):
        part("inference_server.nowhere")


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs a command with a replacement of the torch part."""

    def invoke(module, run, *arguments):
        name = f"gpupack_workloads.{module}"
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(run=run))
        return CliRunner(env={"GPUPACK_RESULT_PATH": str(tmp_path / "message")}).invoke(
            main, arguments
        )

    return invoke


def test_the_load_gets_the_options_of_the_command_line(invoke):
    asked = []

    def run(options):
        asked.append(options)
        return Result(
            workload="inference-load", headline="h", verified=True, simulated=True, metrics={}
        )

    arguments = ["--rate=2.5", "--seconds=3", "--max-batch=4", "--no-graphs", "--seed=5", "--json"]
    outcome = invoke("inference_load.session", run, "inference-load", *arguments)
    assert json.loads(outcome.stdout)["workload"] == "inference-load"
    assert asked == [LoadOptions(rate=2.5, seconds=3.0, max_batch=4, graphs=False, seed=5)]


def test_the_server_gets_the_options_of_the_command_line_and_reports_how_it_ended(invoke):
    asked = []

    def run(options):
        asked.append(options)
        raise Terminated("cut off")

    arguments = ["--host=0.0.0.0", "--token-file=/token", "--port=0", "--require-gpu"]
    outcome = invoke("inference_server.server", run, "inference-server", *arguments)
    assert outcome.exit_code == 143
    assert asked == [
        ServerOptions(host="0.0.0.0", token_file=Path("/token"), port=0, require_gpu=True)
    ]


def test_a_server_is_a_command_and_no_workload():
    assert "inference-server" in CliRunner().invoke(main, ["--help"]).output
    assert "inference-server" not in commands.names()


def test_the_error_for_a_used_address_names_it():
    with bound("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(BadArgument, match=f"cannot listen at 127.0.0.1 port {port}: Address"):
            bound("127.0.0.1", port)
    with bound("::1", 0) as second:
        assert second.family == socket.AF_INET6
