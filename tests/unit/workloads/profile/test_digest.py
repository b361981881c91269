# SPDX-License-Identifier: Apache-2.0
"""Figures of a trace file."""

import gzip
import json

import pytest

from gpupack_workloads.profile.digest import digest, is_communication, table
from gpupack_workloads.profile.trace import parse, read

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def entry(name, start, duration, category="kernel", thread=7):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "tid": thread}


GPU = [
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    entry("aten::mm", 0, 500, "cpu_op"),
    entry("nccl:all_reduce", 100, 80, "gpu_user_annotation"),
    entry("gemm", 100, 50),
    entry("gemm", 160, 50),
    entry(REDUCE, 140, 40, thread=20),
    entry("Memcpy HtoD (Pinned -> Device)", 210, 10, "gpu_memcpy"),
]


def test_a_gpus_time_is_that_of_its_kernels_and_copies_and_overlap_counts_once():
    seen = digest(parse(GPU))
    assert (seen.of_gpu, seen.busy_us, seen.span_us) == (True, 120, 500)
    assert [(top.name, top.calls, top.total_us) for top in seen.tops] == [
        ("gemm", 2, 100), (REDUCE, 1, 40), ("Memcpy HtoD (Pinned -> Device)", 1, 10),
    ]  # fmt: skip


def test_communication_is_exposed_where_nothing_is_computed():
    seen = digest(parse(GPU))
    assert (seen.communication_us, seen.exposed_us) == (40, 10)
    figures = seen.metrics()
    assert figures["communication_ratio"] == pytest.approx(40 / 120, abs=1e-4)
    assert figures["exposed_communication_ratio"] == pytest.approx(10 / 120, abs=1e-4)


def test_without_a_gpu_operators_count_without_those_that_they_call():
    trace = parse([
        entry("aten::matmul", 0, 100, "cpu_op"),
        entry("aten::mm", 10, 70, "cpu_op"),
        entry("aten::empty", 20, 5, "cpu_op"),
        entry("aten::add", 100, 30, "cpu_op"),
        entry("aten::mm", 0, 40, "cpu_op", thread=8),
    ])  # fmt: skip
    seen = digest(trace)
    assert not seen.of_gpu
    assert {top.name: top.total_us for top in seen.tops} == {
        "aten::mm": 105, "aten::matmul": 30, "aten::add": 30, "aten::empty": 5,
    }  # fmt: skip


def test_a_trace_of_nothing_has_no_shares():
    figures = digest(parse([])).metrics()
    assert (figures["busy_ratio"], figures["communication_ratio"], figures["top_kernel"]) == (
        0,
        0,
        "",
    )


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        (REDUCE, True),
        ("Memcpy PtoP (Device -> Device)", True),
        ("gloo:all_reduce", True),
        ("one_shot_all_reduce_kernel", True),
        ("Memcpy DtoH (Device -> Pinned)", False),
        ("void at::native::reduce_kernel<512, 1>", False),
    ],
)
def test_communication_is_identified_by_event_names(name, communicates):
    assert is_communication(name) is communicates


def test_host_copies_are_separate_from_kernels():
    long_copy = entry("Memcpy DtoH (Device -> Pageable)", 400, 350, "gpu_memcpy")
    figures = digest(parse([*GPU, long_copy])).metrics()
    assert (figures["top_kernel"], figures["host_copy_ratio"]) == ("gemm", 0.72)


def test_the_number_of_rows_is_as_requested_and_names_are_short():
    seen = digest(parse([*GPU, entry("k" * 500, 300, 90)]))
    rows = seen.rows(2)
    assert [row["calls"] for row in rows] == [2, 1]
    assert len(rows[1]["kernel"]) == 120
    assert rows[0]["time_ratio"] == pytest.approx(100 / 240, abs=1e-4)


def test_the_table_has_a_line_for_each_row():
    lines = table(digest(parse(GPU)).rows(10)).splitlines()
    assert len(lines) == 4
    assert lines[1].split() == ["0.100", "66.7%", "2", "50.0", "gemm"]


@pytest.mark.parametrize("name", ["a.pt.trace.json", "a.pt.trace.json.gz"])
def test_a_trace_is_read_packed_or_not(tmp_path, name):
    text = json.dumps({"traceEvents": GPU}).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    assert read(path) == parse(GPU)
