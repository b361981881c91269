# SPDX-License-Identifier: Apache-2.0
"""The report of `make demo-gpu`."""

import json

import gpu_report

GPU = {"model": "NVIDIA H200", "memoryMiB": 143771, "uuid": "GPU-1"}


def report(**changes):
    outcome = {"error": "", "gpus": [GPU, GPU], "driver": "580", "results": [], **changes}
    return gpu_report.build(outcome, {"cluster up": 3.0}, seconds=74.2, versions={"cpus": 32})


def test_both_formats_are_named_by_the_gpus(tmp_path):
    path = gpu_report.write(report(), tmp_path)
    assert path.name == "demo-gpu-2xh200.json"
    assert json.loads(path.read_text())["succeeded"]
    assert "2 x NVIDIA H200 (143771 MiB)" in path.with_suffix(".md").read_text()


def test_a_failure_before_any_gpu_was_seen_is_reported_too(tmp_path):
    failed = report(gpus=[], error="NotInTime: late")
    text = gpu_report.write(failed, tmp_path).with_suffix(".md").read_text()
    assert "failed: NotInTime: late" in text
    assert "never reported" in text


def test_results_are_reported_by_their_headlines():
    matmul = {"headline": "760 TFLOP/s", "metrics": {"triton_tflops": 673.4}}
    both = {"a": matmul, "b": {"headline": "318 GB/s", "metrics": {}}}
    text = gpu_report.render(
        report(results=[{"check": "shares", "results": both}, {"check": "none", "seen": {}}])
    )
    assert "| shares | a: 760 TFLOP/s (Triton 673); b: 318 GB/s |" in text
    assert "| none | yes |" in text


def test_the_page_says_the_same_and_lets_no_text_be_markup(tmp_path):
    checks = [{"check": "<b>", "figures": {"halves": [318.0, 317], "events": {"why": "a|b"}}}]
    path = gpu_report.write(report(results=checks), tmp_path)
    page = path.with_suffix(".html").read_text()
    assert "<td>&lt;b&gt;</td><td>halves: 318.0, 317; events: (why: a|b)</td>" in page
    assert "2 x NVIDIA H200 (143771 MiB)" in page
    assert "| <b> | halves: 318.0, 317; events: (why: a/b) |" in path.with_suffix(".md").read_text()
