# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import pytest

from gpupack_crds.results import read_result
from gpupack_workloads import results
from gpupack_workloads.results import (
    MESSAGE_BYTES,
    Result,
    encode,
    headline,
    in_full,
    report,
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


def test_a_result_that_is_too_long_loses_its_last_metrics_and_stays_json():
    metrics = {f"metric_{number:03}": "x" * 100 for number in range(100)}
    encoded = encode(a_result(metrics=metrics))
    kept = json.loads(encoded)["metrics"]
    assert len(encoded) <= MESSAGE_BYTES < len(encoded) + 150
    assert list(kept) == list(metrics)[: len(kept)]


def test_rows_are_for_standard_output_alone():
    result = a_result(rows=[{"size": 1, "tflops": 1.0}])
    assert "rows" not in json.loads(encode(result))
    assert json.loads(in_full(result))["rows"] == [{"size": 1, "tflops": 1.0}]


def test_a_headline_that_no_table_can_show_is_refused():
    assert a_result(headline="x" * 64)
    with pytest.raises(ValueError, match="over 64 characters"):
        a_result(headline="x" * 65)


def test_a_figure_without_a_gpu_is_marked():
    assert headline("1 GB/s", simulated=True) == "1 GB/s (simulated)"
    assert headline("1 GB/s", simulated=False) == "1 GB/s"


def test_a_result_is_left_where_the_operator_says(tmp_path):
    path = result_path({"GPUPACK_RESULT_PATH": str(tmp_path / "message")})
    report(a_result(), path)
    assert json.loads((tmp_path / "message").read_text())["workload"] == "matmul"


def test_without_a_word_of_the_operator_the_kubelets_own_path_is_used(monkeypatch, tmp_path):
    usual = tmp_path / "termination-log"
    monkeypatch.setattr(results, "USUAL_PATH", usual)
    assert result_path({}) is None
    usual.touch()
    assert result_path({}) == usual


def test_a_result_that_cannot_be_written_is_no_failure(caplog):
    report(a_result(), pathlib.Path("/nowhere/message"))
    assert "could not be written to /nowhere/message" in caplog.text
