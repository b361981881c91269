# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/workloads."""

import importlib
import json
import pathlib

import pytest
from alike import assert_alike

ROOT = pathlib.Path(__file__).parents[3]
REPORT = {
    "written": "2026-11-21T18:00:00+00:00", "name": "softmax", "workload": "softmax",
    "arguments": ["--size=8192"], "gpus": 1, "driver": "580.1", "seconds": 12.3,
    "versions": {"torch": "2.15.0", "triton": "3.9.0", "nvidia-nccl-cu13": "2.28"},
    "result": {
        "headline": "4100 GB/s",
        "verified": True,
        "metrics": {"device": "NVIDIA H200", "copy_gb_per_s": 4300.0},
        "rows": [
            {"columns": 1024, "ratio": 0.97, "gb_per_s": 4170.0, "pass": "forward"},
            {"columns": 4096, "ratio": 0.93, "gb_per_s": 4000.0, "pass": "forward"},
            {"columns": 4096, "ratio": 0.80, "gb_per_s": 3500.0, "pass": "backward"},
        ],
    },
}  # fmt: skip


def places(tables):
    """Return a page with a place for each table."""
    marks = (f"<!-- {name}: made -->\nold\n<!-- end of {name} -->\nbetween\n" for name in tables)
    return f"before\n{''.join(marks)}after\n"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("workloads_table")


@pytest.fixture
def bars(table):
    return importlib.import_module("workloads_bars")


@pytest.fixture
def write(table, bars, monkeypatch, tmp_path):
    """Return a function that writes the tables of reports into pages, with two bars."""
    forward = {"pass": "forward"}
    two = (
        bars.Bar("softmax forward", "softmax", 1, "≥ 0.95 x copy", 0.95,
                 bars.least("gb_per_s", **forward), "GB/s", ratio=bars.least("ratio", **forward)),
        bars.Bar("latency", "collectives", 4, "≤ 15 µs", 15, bars.metric("us"), "µs", most=True),
    )  # fmt: skip
    monkeypatch.setattr(table, "BARS", two)
    docs, reports = tmp_path / "docs", tmp_path / "kept"
    reports.mkdir()
    for page, tables in table.TABLES.items():
        (docs / page).parent.mkdir(parents=True, exist_ok=True)
        (docs / page).write_text(places(tables))

    def write(*kept):
        for report in kept:
            (reports / f"{report['name']}-{report['gpus']}.json").write_text(json.dumps(report))
        assert table.main([], docs=docs, reports=reports) == 0
        return "".join((docs / page).read_text() for page in table.TABLES)

    write.check = lambda: table.main(["--check"], docs=docs, reports=reports)
    return write


def test_the_pages_are_what_the_reports_say(table, tmp_path):
    for page in table.TABLES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text((table.DOCUMENTS / page).read_text())
    table.main([], docs=tmp_path)
    for page in table.TABLES:
        assert_alike((tmp_path / page).read_text(), (table.DOCUMENTS / page).read_text())


def test_a_missed_target_is_reported_with_device_versions_and_date(write):
    assert (
        "| softmax forward | ≥ 0.95 x copy | 0.930 | 4,000 GB/s | **no** | 1 x NVIDIA H200 |"
        " torch 2.15.0, Triton 3.9.0, driver 580.1 | 2026-11-21 |\n"
    ) in write(REPORT)


def test_a_target_without_a_ratio_is_judged_by_its_figure(write):
    metrics = {"device": "NVIDIA H200", "us": 14.0}
    result = {"headline": "14 µs", "verified": True, "metrics": metrics}
    text = write(REPORT | {"name": "collectives", "gpus": 4, "result": result})
    assert "| latency | ≤ 15 µs | - | 14 µs | yes | 4 x NVIDIA H200 |" in text
    assert "NCCL 2.28" in text


def test_missing_runs_and_figures_are_reported(write):
    result = {"headline": "x", "verified": True, "metrics": {"device": "NVIDIA H200"}}
    text = write(REPORT | {"name": "collectives", "gpus": 4, "result": result})
    assert "| softmax forward | ≥ 0.95 x copy | - | not yet run | - |" in text
    assert "| latency | ≤ 15 µs | - | - | - | 4 x NVIDIA H200 |" in text


def test_each_way_to_distribute_the_transformer_has_a_row(write):
    metrics = {
        "device": "NVIDIA H200", "parallel": "tp", "tokens_per_s": 153333.4, "mfu": 0.3301,
        "peak_memory_mib": 27120, "kernels_ratio": 0.9694,
    }  # fmt: skip
    result = {"headline": "x", "verified": True, "metrics": metrics}
    spread = {"name": "transformer-tp", "workload": "transformer", "gpus": 2, "result": result}
    text = write(REPORT, REPORT | spread)
    assert "| 2 x NVIDIA H200, `tp` | 153,333 | 0.330 | 27,120 | 0.969 | 3.9.0 |\n" in text
    every = spread | {
        "name": "transformer-all",
        "result": result | {"metrics": metrics | {"kernels": "all"}},
    }
    assert "| 2 x NVIDIA H200, `tp`, `--kernels all` | 153,333 |" in write(REPORT | every)


def test_packed_sequences_are_compared_with_implementations_that_support_them(write):
    line = {"mask": "full", "pass": "forward", "tflops": 397.5, "sdpa_ratio": 0.9131}
    metrics = {"device": "NVIDIA H200"}
    result = {"headline": "x", "verified": True, "metrics": metrics, "rows": [line]}
    text = write(REPORT | {"name": "attention-varlen", "result": result})
    assert "| full | forward | 398 | 0.913 | - | - |\n" in text


@pytest.mark.parametrize("result", [{"verified": False}, {}])
def test_an_unverified_result_is_not_in_the_tables(write, result):
    with pytest.raises(ValueError, match=r"softmax-1\.json: its result was not verified"):
        write(REPORT | {"result": {"headline": "x", "metrics": {"device": "GPU"}} | result})


def test_every_run_is_listed_with_its_report(write):
    row = "| `softmax --size=8192` | 4100 GB/s | 12 | [1 x NVIDIA H200]"
    assert f"{row}(softmax-1xh200.json) |" in write(REPORT)


def test_the_index_has_the_newest_headline_of_each_workload_and_its_manifests(write):
    newer = {"written": "2026-11-22T18:00:00+00:00", "gpus": 2}
    result = REPORT["result"] | {"headline": "4200 GB/s"}
    text = write(REPORT, REPORT | newer | {"result": result})
    report = "[2 x NVIDIA H200](../reports/workloads/softmax-2xh200.json)"
    assert f"[softmax](../../examples/softmax.yaml) | 4200 GB/s ({report}) |" in text
    shares = "[matmul](../../examples/matmul.yaml), [share](../../examples/share.yaml)"
    assert f"{shares} | - |" in text


def test_each_technique_of_train_cnn_has_its_row(write):
    rows = [
        {"technique": name, "step_ms": 17.0599, "images_per_s": 60023.88, "peak_memory_mib": 2359}
        for name in ("fp32", "amp")
    ]
    result = REPORT["result"] | {"rows": rows}
    text = write(REPORT | {"name": "train-cnn", "result": result})
    assert (
        "| fp32 | 17.06 | 60,024 | 2,359 |\n| + AMP, fp16 with scaling | 17.06 | 60,024 | 2,359 |\n"
    ) in text


def test_each_kernel_of_cuda_matmul_that_ran_has_its_row(write):
    rows = [
        {"step": "naive", "dtype": "float32", "tflops": 5.04, "cublas_tflops": 50.41,
         "cublas_ratio": 0.1},
        {"step": "tensor_cores", "dtype": "bfloat16", "left_out": "not on this GPU"},
    ]  # fmt: skip
    text = write(REPORT | {"name": "cuda-matmul", "result": REPORT["result"] | {"rows": rows}})
    assert "| `naive` | float32 | 5.0 | 50.4 | 0.100 |\n<!-- end of cuda-matmul -->" in text


def test_each_problem_of_thunderkittens_has_every_language_and_each_program_its_lines(write):
    speeds = {"thunderkittens": 600.4, "gluon": 640.0, "triton": 480.0, "cudnn": 667.1}
    rows = [{"problem": "causal_4096", "by": by, "tflops": tflops} for by, tflops in speeds.items()]
    programs = [
        {"kernel": "gemm", "by": "thunderkittens", "lines": 106, "compile_seconds": 2.51,
         "nvcc_seconds": 2.51, "nvrtc_seconds": 1.44},
        {"kernel": "gemm", "by": "gluon", "lines": 173, "compile_seconds": 3.06},
    ]  # fmt: skip
    result = REPORT["result"] | {"rows": [*rows, *programs]}
    text = write(REPORT | {"name": "thunderkittens", "result": result})
    assert "| attention, causal, 4096 | 600 | 640 | 480 | cuDNN 667 | 0.900 |\n<!-- end" in text
    assert (
        "| gemm | tile C++ | 106 | 2.5 by nvcc, 1.4 by nvrtc |\n"
        "| gemm | Gluon | 173 | 3.1 |\n<!-- end of thunderkittens-programs -->"
    ) in text


def test_each_size_of_p2p_cpp_has_the_slowest_pairs_figures(write):
    rows = [
        {"source": 0, "target": 1, "peer_access": True},
        {"bytes": 4096, "memcpy_gb_per_s": 1.5, "host_gb_per_s": 0.25},
        {"bytes": 65536, "memcpy_gb_per_s": 20.0},
        {"bytes": 4096, "memcpy_gb_per_s": 1.25, "host_gb_per_s": 0.5},
    ]
    result = REPORT["result"] | {"rows": rows}
    text = write(REPORT | {"name": "p2p-cpp", "gpus": 2, "result": result})
    assert (
        "| 4,096 | 1.25 | - | - | 0.25 | - | - | - | - | - |\n"
        "| 65,536 | 20.00 | - | - | - | - | - | - | - | - |\n<!-- end of p2p-cpp -->"
    ) in text


def test_each_size_of_symmetric_memory_has_its_rows(write):
    rows = [
        {"part": "one-sided", "way": "triton put", "size_bytes": 8, "us": 3.25,
         "gb_per_s": 0.00246},
        {"part": "one-sided", "way": "send-recv", "size_bytes": 8, "us": 13.5, "gb_per_s": 0.00059},
        {"part": "matmul", "rows": 8192, "nccl_us": 1000.0, "kernel_us": 800.0, "alone_us": 750.0,
         "kernel_nccl_ratio": 1.25},
    ]  # fmt: skip
    result = REPORT["result"] | {"rows": rows}
    text = write(REPORT | {"name": "symmetric-memory", "gpus": 2, "result": result})
    assert (
        "| 8,192 | 1,000.0 | - | 800.0 | - | 750.0 | - | 1.250 | - |\n<!-- end of gathered -->"
    ) in text
    assert (
        "| 8 | 3.2 (0.00246) | - | - | - | 13.5 (0.00059) | - | - |\n<!-- end of one-sided -->"
    ) in text


def test_the_text_around_the_tables_stays_and_a_second_run_changes_nothing(write):
    text = write(REPORT)
    assert text.startswith("before\n")
    assert "\nbetween\n" in text
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert write() == text
    assert write.check() == 0


def test_pages_that_are_not_up_to_date_fail_the_check(write, capsys):
    assert write.check() == 1
    assert "make workloads-table" in capsys.readouterr().out


def test_every_target_refers_to_a_run_of_the_suite(table, bars):
    runs = importlib.import_module("workloads_runs").RUNS
    there = {(run.name, run.gpus) for run in runs}
    assert [bar.what for bar in bars.BARS if (bar.run, bar.gpus) not in there] == []
