# SPDX-License-Identifier: Apache-2.0
"""The llm-kernels workload from the inside."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, NoSuchDevice, WrongResult
from gpupack_workloads.llm_kernels import (
    CPU_SIZES,
    GPU_SIZES,
    KERNELS,
    LlmOptions,
    run,
    session,
)
from gpupack_workloads.llm_kernels.cases import CASES, needed_bytes
from gpupack_workloads.llm_kernels.session import judged, measure, rivals_of

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
CPU = Device(torch.device("cpu"), "CPU")
SMALL = replace(CPU_SIZES, tokens=7, hidden=20, head=6, intermediate=33, vocabulary=50)


@no_gpu
def test_a_small_run_verifies_each_kernel_in_both_of_its_ways():
    result = run(LlmOptions(size=9, seed=4))
    assert (result.verified, result.simulated) == (True, True)
    assert result.headline.endswith("x torch at least (simulated)")
    assert [(row["kernel"], row["pass"]) for row in result.rows] == [
        (name, way) for name in KERNELS for way in CASES[name].ways
    ]
    for row in result.rows:
        assert row["error"] <= row["error_bound"]
        assert row["eager_ratio"] == result.metrics[f"{row['kernel']}_{row['pass']}_eager_ratio"]
    assert result.metrics["eager_ratio"] == min(row["eager_ratio"] for row in result.rows)


@no_gpu
def test_one_kernel_may_be_asked_for_in_half_precision():
    result = run(LlmOptions(kernel="swiglu", size=5, intermediate=30, dtype="float16"))
    assert {row["kernel"] for row in result.rows} == {"swiglu"}
    assert (result.metrics["dtype"], result.metrics["intermediate"]) == ("float16", 30)


@no_gpu
def test_a_gpu_that_is_required_and_not_there_is_missed():
    with pytest.raises(NoSuchDevice):
        run(LlmOptions(require_gpu=True))


@no_gpu
def test_bfloat16_is_refused_without_a_gpu():
    with pytest.raises(BadArgument, match="--dtype bfloat16 needs a GPU"):
        run(LlmOptions(dtype="bfloat16"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_each_kernel_is_timed_against_torch_compile_on_a_gpu():
    result = run(LlmOptions(size=512, hidden=1024, intermediate=2000, vocabulary=4000))
    assert len(result.rows) == 8
    for row in result.rows:
        assert row["compiled_ratio"] > 0
        assert row["peak_mib"] >= 0
    assert result.metrics["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("name", "way", "result"),
    [(name, way, 0) for name in KERNELS for way in CASES[name].ways]
    + [("rms_norm", "backward", 1), ("rotary", "forward", 1), ("rotary", "backward", 1),
       ("swiglu", "backward", 1), ("linear_cross_entropy", "both", 1),
       ("linear_cross_entropy", "both", 2)],
)  # fmt: skip
def test_one_wrong_value_of_any_result_is_refused(name, way, result):
    case = CASES[name](SMALL, CPU.torch, 3)
    case.ours = case.plain
    (ours, _) = rivals_of(case).values()
    found = tuple(x.clone() for x in session.work_of(way, ours)())
    judged(case, way, found)
    found[result].flatten()[-1:] += 0.05
    with pytest.raises(WrongResult, match=f"{name} {way} in float32 is wrong by"):
        judged(case, way, found)


@no_gpu
def test_what_goes_wrong_while_it_is_timed_is_noticed():
    case = CASES["swiglu"](SMALL, CPU.torch, 3)
    calls = SimpleNamespace(count=0)

    def ours(*inputs):
        calls.count += 1
        return tuple(x * (1 if calls.count < 2 else 1.001) for x in case.plain(*inputs))

    case.ours = ours
    with pytest.raises(WrongResult, match="swiglu forward"):
        measure(case, CPU)


class Liger:
    """Computes as Liger-Kernel does by name, and overwrites its inputs."""

    @staticmethod
    def liger_swiglu(opening, value):
        z = torch.nn.functional.silu(opening) * value
        opening.detach().zero_()
        return z


def test_a_rival_that_overwrites_its_operands_leaves_those_of_others(monkeypatch):
    case = CASES["swiglu"](SMALL, CPU.torch, 3)
    case.device = torch.device("cuda")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(session, "liger", lambda: Liger)
    rivals = rivals_of(case)
    assert list(rivals) == ["ours", "eager", "compiled", "liger"]
    with torch.no_grad():
        rivals["liger"].function(*rivals["liger"].inputs)
    assert not rivals["liger"].inputs[0].any()
    assert case.inputs[0].all()
    assert rivals["ours"].inputs[0].data_ptr() == case.inputs[0].data_ptr()


def test_the_loss_at_its_usual_size_needs_some_40_gib_and_others_less():
    needed = {name: needed_bytes([name], GPU_SIZES) / 2**30 for name in KERNELS}
    assert 20 < needed["linear_cross_entropy"] < 48
    assert max(needed.values()) == needed["linear_cross_entropy"]
    assert needed_bytes(KERNELS, GPU_SIZES) == needed_bytes(["linear_cross_entropy"], GPU_SIZES)
