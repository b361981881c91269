# SPDX-License-Identifier: Apache-2.0
"""How fast GPUs count as, by what burn-ins measured."""

import msgspec
import pytest

from gpupack_crds.kinds import GpuNode
from gpupack_placement import USUAL_SPEED
from gpupack_scheduler.speeds import STEP, Speeds


def gpunode(name, *tflops, memory=4000.0, model="NVIDIA H200", **fields):
    """A node whose GPUs NAME/0, NAME/1 and so on were measured so; None: this one was not."""
    uuids = [f"{name}-{number}" for number in range(len(tflops))]
    devices = [
        {"uuid": uuid, "index": number, "model": model, "memoryMiB": 1000}
        for number, uuid in enumerate(uuids)
    ]
    found = {"at": "2026-01-01T00:00:00Z", "outcome": "Passed", "memoryGbPerS": memory} | fields
    measured = [
        {"gpu": uuid, "tflops": figure, **found}
        for uuid, figure in zip(uuids, tflops, strict=True)
        if figure is not None
    ]
    status = {"devices": devices, "measured": measured}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, GpuNode)


@pytest.fixture
def speeds():
    known = Speeds()
    known.put("a", gpunode("a", 600, 600, 606, 420))
    return known


def test_a_gpu_is_as_fast_as_its_part_of_the_median_of_its_model(speeds):
    assert speeds.of("a") == {"a-0": 1000, "a-1": 1000, "a-2": 1000, "a-3": 700}
    assert speeds.of("b") == {}


def test_the_worse_of_its_figures_counts(speeds):
    speeds.put("b", gpunode("b", 600, memory=3000.0))
    assert speeds.of("b") == {"b-0": 760}


def test_speeds_that_differ_by_less_than_a_step_are_equal(speeds):
    speeds.put("b", gpunode("b", 594, 606, 588))
    assert list(speeds.of("b").values()) == [1000, 1000, USUAL_SPEED - STEP]


def test_of_too_few_gpus_no_median_is_made():
    known = Speeds()
    known.put("a", gpunode("a", 600, 300, 600))
    assert known.of("a") == {}


@pytest.mark.parametrize(
    "fields", [{"outcome": "Failed"}, {"outcome": "Unknown"}, {"simulated": True}, {"model": "T4"}]
)
def test_measurements_of_other_gpus_do_not_count(speeds, fields):
    speeds.put("b", gpunode("b", 60, 60, **fields))
    assert speeds.of("b") == {}
    assert speeds.of("a")["a-0"] == 1000


def test_a_burn_in_that_moves_no_median_changes_no_other_node(speeds):
    assert speeds.put("b", gpunode("b", 603)) == set()
    assert speeds.put("b", gpunode("b", 603)) == set()


def test_a_changed_median_reports_all_nodes_with_such_gpus(speeds):
    assert speeds.put("b", gpunode("b", 700, 700, 700, 700)) == {"a", "b"}
    assert speeds.of("b")["b-0"] > speeds.of("a")["a-0"]
    assert speeds.put("b", None) == {"a"}
    assert speeds.of("a")["a-0"] == 1000


def test_removed_nodes_leave_no_speeds(speeds):
    speeds.put("a", None)
    assert (speeds._figures, speeds._usual) == ({}, {})
