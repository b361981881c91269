# SPDX-License-Identifier: Apache-2.0
"""The workload `attention` over packed sequences and over pages."""

import json
import os
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels import attention_varlen
from gpupack_workloads.attention import paged, run, varlen
from gpupack_workloads.attention.decoding import random_pages
from gpupack_workloads.attention.lengths import lengths_of, ragged_plan_for
from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.attention.packed import Packed
from gpupack_workloads.devices import choose_device
from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.results import encode

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
SMALL = {"size": 12, "batch": 2, "heads": 2, "kv_heads": 1}


def test_lengths_have_the_longest_and_one_seed_gives_one_set():
    lengths = lengths_of(50, 9, seed=3)
    assert (lengths[0], len(lengths), set(lengths)) == (9, 50, set(range(1, 10)))
    assert lengths_of(50, 9, seed=3) == lengths != lengths_of(50, 9, seed=4)


@pytest.mark.parametrize("layout", ["varlen", "paged"])
def test_heads_that_cannot_be_shared_are_refused(layout):
    device = choose_device(require_gpu=False)
    with pytest.raises(BadArgument, match="heads cannot share 3 key heads"):
        ragged_plan_for(device, AttentionOptions(layout=layout, kv_heads=3))


@no_gpu
def test_a_small_run_over_packed_sequences_is_verified_and_fits_a_termination_message():
    result = run(AttentionOptions(layout="varlen", **SMALL))
    assert result.verified
    assert result.metrics["layout"] == "varlen"
    assert result.metrics["causal_backward_error"] <= result.metrics["causal_backward_error_bound"]
    assert result.metrics["forward_sdpa_ratio"] > 0
    assert len(encode(result)) < 4096


def test_a_small_run_over_pages_is_verified_against_torchs_attention_over_copies():
    result = run(AttentionOptions(layout="paged", page_tokens=5, **SMALL))
    assert result.verified
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert result.metrics["gathered_ratio"] > 0


def test_both_ways_of_torch_compute_what_ours_does():
    device = choose_device(require_gpu=False)
    plan = ragged_plan_for(device, AttentionOptions(layout="paged", **SMALL))
    pages = random_pages(plan, device.torch, seed=1)
    paged.check(pages, pages.gathered())
    packed = Packed((9, 3), device.torch)
    inputs = varlen.inputs_for(packed, (2, 1), device, plan, seed=1)
    found, wanted = (
        each(*inputs.qkv, causal=True)
        for each in (packed.by_sequence, varlen.over(attention_varlen, packed))
    )
    near = 1e-5 if device.simulated else 0.03
    torch.testing.assert_close(found, wanted, rtol=near, atol=near)


@no_gpu
def test_a_sequence_that_looks_into_its_neighbour_is_found_out():
    device = choose_device(require_gpu=False)
    packed = Packed((9, 3), device.torch)
    plan = ragged_plan_for(device, AttentionOptions(layout="varlen", **SMALL))
    inputs = varlen.inputs_for(packed, (2, 1), device, plan, seed=1)
    one = varlen.over(attention_varlen, Packed((12,), device.torch))
    with pytest.raises(WrongResult, match="rounding explains"):
        varlen.check(one, packed, inputs, causal=True)


def test_one_wrong_row_over_pages_is_found_out():
    device = choose_device(require_gpu=False)
    plan = ragged_plan_for(device, AttentionOptions(layout="paged", **SMALL))
    pages = random_pages(plan, device.torch, seed=1)
    o = pages.gathered()
    o[1, 1, 7] += 0.1
    with pytest.raises(WrongResult, match="attention over pages"):
        paged.check(pages, o)


@pytest.mark.parametrize("layout", ["varlen", "paged"])
def test_a_problem_that_does_not_fit_is_refused_before_any_work(layout):
    with pytest.raises(OutOfMemory, match="are free"):
        run(AttentionOptions(layout=layout, size=131072, batch=1024, heads=256, kv_heads=256))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layout", "ratio"), [("varlen", "causal_backward_sdpa_ratio"), ("paged", "gathered_ratio")]
)
def test_the_command_reports_ratios_on_a_gpu(layout, ratio):
    command = [sys.executable, "-m", "gpupack_workloads", "attention", "--json", "--size", "1024"]
    command += ["--layout", layout, "--batch", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout)["metrics"][ratio] > 0
