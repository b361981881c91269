# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import pytest

from gpupack_crds.results import read_result
from gpupack_workloads import results
from gpupack_workloads.commands.common import show
from gpupack_workloads.results import (
    MESSAGE_BYTES,
    Communication,
    Result,
    encode,
    headline,
    in_full,
    report,
    result_bytes,
    result_path,
)


def a_result(**changes):
    fields = {"workload": "matmul", "headline": "1 TFLOP/s", "verified": True, "simulated": False}
    return Result(**(fields | {"metrics": {"tflops": 1.0}} | changes))


def test_a_result_is_json_of_the_documented_schema():
    assert json.loads(encode(a_result())) == {
        "schema": "gpupack.dev/result/v1",
        "workload": "matmul",
        "headline": "1 TFLOP/s",
        "verified": True,
        "simulated": False,
        "metrics": {"tflops": 1.0},
    }


def test_the_operator_reads_what_a_workload_writes():
    read = read_result(encode(a_result(simulated=True)).decode())
    assert read is not None
    assert (read.workload, read.headline, read.verified, read.simulated, read.metrics) == (
        "matmul", "1 TFLOP/s", True, True, {"tflops": 1.0},
    )  # fmt: skip


def test_the_operator_reads_how_a_gang_communicates():
    found = Communication(transport="NET/Socket,P2P/CUMEM", bus_gb_per_s=9.2)
    read = read_result(encode(a_result(communication=found)).decode())
    assert read is not None
    assert read.communication is not None
    assert (read.communication.transport, read.communication.bus_gb_per_s) == (
        "NET/Socket,P2P/CUMEM", 9.2,
    )  # fmt: skip


def test_a_result_that_is_too_long_loses_its_last_metrics_and_stays_json():
    metrics = {f"metric_{number:03}": "x" * 100 for number in range(100)}
    encoded = encode(a_result(metrics=metrics))
    kept = json.loads(encoded)["metrics"]
    assert len(encoded) <= MESSAGE_BYTES < len(encoded) + 150
    assert kept.pop("metrics_left_out") == len(metrics) - len(kept)
    assert list(kept) == list(metrics)[: len(kept)]


@pytest.mark.parametrize("containers", [1, 3, 4, 8, 16, 64, 128, 256])
def test_a_result_fits_what_the_kubelet_keeps_where_many_containers_share_a_pod(containers):
    metrics = {f"metric_{number:03}": "x" * 100 for number in range(100)}
    limit_bytes = min(4096, 12 * 1024 // containers)
    encoded = encode(a_result(metrics=metrics, headline="x" * 64), limit_bytes)
    assert len(encoded) <= limit_bytes
    read = read_result(encoded.decode())
    assert read is not None
    assert read.metrics.get("metrics_left_out", 0) + len(read.metrics) - 1 in {100, -1}


def test_a_result_that_fits_keeps_all_metrics_at_any_limit():
    assert encode(a_result(), 200) == encode(a_result())


@pytest.mark.parametrize(
    ("said", "limit_bytes"),
    [({}, 4096), ({"GPUPACK_RESULT_BYTES": "1536"}, 1536), ({"GPUPACK_RESULT_BYTES": ""}, 4096)]
    + [({"GPUPACK_RESULT_BYTES": text}, 4096) for text in ("9999", "many")],
)
def test_the_operator_says_how_many_bytes_of_a_result_are_kept(said, limit_bytes):
    assert result_bytes(said) == limit_bytes


def test_a_command_writes_at_most_as_many_bytes_as_are_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GPUPACK_RESULT_PATH", str(tmp_path / "message"))
    monkeypatch.setenv("GPUPACK_RESULT_BYTES", "200")
    show(a_result(metrics={f"metric_{number}": number for number in range(50)}), as_json=True)
    left = (tmp_path / "message").read_bytes()
    assert len(left) <= 200
    assert json.loads(left)["metrics"]["metrics_left_out"] > 0
    assert len(json.loads(capsys.readouterr().out)["metrics"]) == 50


def test_rows_are_only_on_standard_output():
    result = a_result(rows=[{"size": 1, "tflops": 1.0}])
    assert "rows" not in json.loads(encode(result))
    assert json.loads(in_full(result))["rows"] == [{"size": 1, "tflops": 1.0}]


def test_a_headline_that_is_too_long_is_refused():
    assert a_result(headline="x" * 64)
    with pytest.raises(ValueError, match="over 64 characters"):
        a_result(headline="x" * 65)


def test_a_figure_without_a_gpu_is_marked():
    assert headline("1 GB/s", simulated=True) == "1 GB/s (simulated)"
    assert headline("1 GB/s", simulated=False) == "1 GB/s"


def test_a_result_is_written_to_the_operators_path(tmp_path):
    path = result_path({"GPUPACK_RESULT_PATH": str(tmp_path / "message")})
    report(a_result(), path)
    assert json.loads((tmp_path / "message").read_text())["workload"] == "matmul"


def test_without_the_operators_path_the_kubelets_default_is_used(monkeypatch, tmp_path):
    usual = tmp_path / "termination-log"
    monkeypatch.setattr(results, "USUAL_PATH", usual)
    assert result_path({}) is None
    usual.touch()
    assert result_path({}) == usual


def test_a_result_that_cannot_be_written_does_not_fail_the_workload(caplog):
    report(a_result(), pathlib.Path("/nowhere/message"))
    assert "could not be written to /nowhere/message" in caplog.text
